import type { EndedActivity } from '../attempts.ts';

export interface RecordBase {
  id: string;
  /** ISO-8601, UTC, milliseconds. */
  at: string;
  /**
   * The activities of the turn that have ended with this record, or since the one before it without a record. Only `Turn`
   * adds them, fed with a history; the workflow does not know them.
   */
  activities?: EndedActivity[];
}

export type WithoutId<R> = R extends unknown ? Omit<R, 'id'> : never;
