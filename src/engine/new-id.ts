import { randomInt } from 'node:crypto';
import { DIGITS, ulid, type IdPrefix } from '../core/ids.ts';

/**
 * A new id that sorts by `now` (milliseconds since 1970). Each id takes its 80 random bits from the system's
 * cryptographic source, so that an id reveals nothing about other callers' ids, even of the same millisecond.
 */
export function newId(prefix: IdPrefix, now: number = Date.now()): string {
  return ulid(prefix, now, () => randomInt(DIGITS));
}
