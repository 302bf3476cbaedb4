import type { Subject } from '../../../core/subject.ts';
import type { WireSubject } from './events.ts';

/**
 * What is left of a record, or of a part of one, after each field has been mapped or named as internal. By
 * `rest satisfies NoFields` a field that is added in core and forgotten here is a type error.
 */
export type NoFields = Record<string, never>;

export function subjectToWire({ subjectId, subjectType, subjectSlug, ...rest }: Subject): WireSubject {
  rest satisfies NoFields;
  return { subject_id: subjectId, subject_type: subjectType, subject_slug: subjectSlug };
}
