import { z } from 'zod';
import type { Subject } from '../../../core/subject.ts';
import { fieldsToWire } from '../../http/wire-fields.ts';

export const subject = z
  .object({ subject_id: z.string(), subject_type: z.string(), subject_slug: z.string() })
  .meta({ id: 'Subject' });

export function subjectToWire(by: Subject): z.infer<typeof subject> {
  return fieldsToWire(subject, by);
}
