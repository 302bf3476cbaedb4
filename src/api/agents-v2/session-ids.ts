import { ulidOf, numberOf } from '../../core/ids.ts';
import { newId } from '../../engine/new-id.ts';
import { sha256 } from '../../lib/hash.ts';
import { invalidField } from './errors.ts';

const PREFIX = 'ses_';

/** The bits in which a UUID has its version and its variant, and those of version 7 (RFC 9562, section 5.7). */
const FIXED_BITS = 0xf000_c000_0000_0000_0000n;
const VERSION_7 = 0x7000_8000_0000_0000_0000n;

/**
 * Sessions have ULIDs as ids and this API has UUIDs: both are names of the same 128 bits, so that every session has both.
 * The UUIDs of sessions that this API has created are of version 7.
 */
export function newSessionId(): string {
  return asVersion7(numberOf(newId('ses').slice(PREFIX.length)));
}

/** The id derived from a text and a time (milliseconds since 1970); each attempt gets the same one. */
export function derivedSessionId(text: string, now: number): string {
  const random = BigInt(`0x${sha256(text).slice(0, 20)}`);
  return asVersion7((BigInt(now) << 80n) | random);
}

function asVersion7(bits: bigint): string {
  return PREFIX + ulidOf((bits & ~FIXED_BITS) | VERSION_7);
}

export function toUuid(sessionId: string): string {
  const hex = numberOf(sessionId.slice(PREFIX.length)).toString(16).padStart(32, '0');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

/** @throws ApiError `invalid_request` if the text is not a UUID */
export function fromUuid(uuid: string, param = 'id'): string {
  if (!/^[\da-f]{8}(-?)[\da-f]{4}\1[\da-f]{4}\1[\da-f]{4}\1[\da-f]{12}$/i.test(uuid)) {
    throw invalidField(param, 'must be a UUID');
  }
  return PREFIX + ulidOf(BigInt(`0x${uuid.replaceAll('-', '')}`));
}
