import type { Reader } from '../../src/auth/rights.ts';

/** The owner of a session, and every other reader. */
export const OWNER: Reader = { isOwner: true };
export const OTHER: Reader = { isOwner: false };
