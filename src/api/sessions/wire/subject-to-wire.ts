import type { Subject } from '../../../core/subject.ts';
import type { WireSubject } from './events.ts';
import type { NoFields } from './no-fields.ts';

export function subjectToWire({ subjectId, subjectType, subjectSlug, ...rest }: Subject): WireSubject {
  rest satisfies NoFields;
  return { subject_id: subjectId, subject_type: subjectType, subject_slug: subjectSlug };
}
