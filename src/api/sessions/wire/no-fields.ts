/**
 * What is left of a record, or of a part of one, after each field has been mapped or named as internal. By
 * `rest satisfies NoFields` a field that is added in core and forgotten here is a type error.
 */
export type NoFields = Record<string, never>;

/** A record without what all kinds of records have, which `events-to-wire.ts` adds to the events of a reader that gets it. */
export type Bare<R> = R extends unknown ? Omit<R, 'activities'> : never;
