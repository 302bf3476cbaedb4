import { randomInt } from 'node:crypto';
import { DIGITS, ulid, type IdPrefix } from '../core/ids.ts';

/**
 * A new id that sorts by `now` (milliseconds since 1970). Its 80 random bits come from the system's cryptographic source,
 * for each id anew: ids that a caller is given say nothing about those of others, not even of the same millisecond.
 */
export function newId(prefix: IdPrefix, now: number = Date.now()): string {
  return ulid(prefix, now, () => randomInt(DIGITS));
}
