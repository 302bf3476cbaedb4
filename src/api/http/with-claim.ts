import type { RequestClaim } from '../../engine/request-claims.ts';
import { isRefusal } from './errors.ts';

/** Does the work of a request with an idempotency key, which can be used again if the first request is rejected. */
export async function withClaim<T>(
  { isNew, release }: Pick<RequestClaim, 'isNew' | 'release'>,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isNew && isRefusal(error)) await release();
    throw error;
  }
}
