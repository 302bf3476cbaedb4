import type { Request } from 'express';
import type { Catalog } from '../catalog/catalog.ts';
import { ApiError } from './errors.ts';

/** A key is remembered for this long. */
export const KEY_LIFETIME_MS = 24 * 3_600_000;

/** The header `Idempotency-Key`. @throws ApiError if it is not usable */
export function idempotencyKey(request: Request): string | undefined {
  const key = request.get('idempotency-key');
  if (key !== undefined && !/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw new ApiError('invalid_request', 'Idempotency-Key must be 1 to 255 visible ASCII characters', {
      param: 'Idempotency-Key',
    });
  }
  return key;
}

export function keyReused(): ApiError {
  return new ApiError('idempotency_key_reused', 'this Idempotency-Key was used with another body: use a new one');
}

interface KeyClaim {
  catalog: Catalog;
  scope: string;
  key: string | undefined;
  bodyHash: string;
  newId: () => string;
}

/** The id of what this request creates: a new one, or the one that the same request got before. */
export async function claimKey({ catalog, scope, key, bodyHash, newId }: KeyClaim): Promise<string> {
  if (key === undefined) return newId();
  const now = new Date();
  const claim = await catalog.idempotency.claim(
    { scope, key: `key:${key}`, resourceId: newId(), bodyHash, now: now.toISOString() },
    new Date(now.getTime() - KEY_LIFETIME_MS).toISOString(),
  );
  if (claim.bodyHash !== bodyHash) throw keyReused();
  return claim.resourceId;
}
