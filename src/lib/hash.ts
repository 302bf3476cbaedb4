import { createHash } from 'node:crypto';
import { isJsonObject } from './json.ts';

/** SHA-256 in hex. */
export function sha256(bytes: string | Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** SHA-256 of a JSON value in hex, independent of the order of its keys. */
export function hashOf(value: unknown): string {
  return sha256(JSON.stringify(value, (_, inner: unknown) => (isJsonObject(inner) ? sorted(inner) : inner)));
}

function sorted(value: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
