import { createHash } from 'node:crypto';

/** SHA-256 in hex. */
export function sha256(bytes: string | Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** SHA-256 of a JSON value in hex, independent of the order of its keys. */
export function hashOf(value: unknown): string {
  return sha256(JSON.stringify(value, (_, inner: unknown) => (isObject(inner) ? sorted(inner) : inner)));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function sorted(value: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
