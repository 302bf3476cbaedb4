import { randomBytes } from 'node:crypto';
import { sha256 } from '../lib/hash.ts';

/** So that people, and the scanners that look for secrets where none should be, know what they see. */
const PREFIX = 'everturn_';

/** A new key: 256 random bits behind a prefix, `everturn_[0-9a-f]{64}`. */
export function newApiKey(): string {
  return PREFIX + randomBytes(32).toString('hex');
}

/**
 * What is kept of a key. One round of SHA-256 is enough for it: slow hashes such as bcrypt make up for passwords that
 * can be guessed, and nobody guesses 256 random bits. They would only make each request slow.
 */
export function hashOfKey(key: string): string {
  return sha256(key);
}
