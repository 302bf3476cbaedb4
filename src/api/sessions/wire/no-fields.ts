/**
 * The rest of a record, or of a part of it, after each field has been mapped or named as internal. By
 * `rest satisfies NoFields` a field that is added in core and forgotten here is a type error.
 */
export type NoFields = Record<string, never>;

/** A record without the field that all kinds have: `events-to-wire.ts` adds it to the events of readers that get it. */
export type Bare<R> = R extends unknown ? Omit<R, 'activities'> : never;
