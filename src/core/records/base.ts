import type { EndedActivity } from '../attempts.ts';

export interface RecordBase {
  id: string;
  /** ISO-8601, UTC, milliseconds. */
  at: string;
  /**
   * The activities of the turn that have ended with this record, or since the one before it without a record. Only a
   * `Turn` that is fed with a history adds them; the workflow does not have them.
   */
  activities?: EndedActivity[];
}

export type WithoutId<R> = R extends unknown ? Omit<R, 'id'> : never;
