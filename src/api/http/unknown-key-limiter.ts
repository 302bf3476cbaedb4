import type { Request, Response } from 'express';
import { ipKeyGenerator, type AugmentedRequest } from 'express-rate-limit';
import { ApiError } from './errors.ts';
import type { Limits } from '../../engine/limits.ts';
import { countRequest, perMinute, type RateLimitServices } from './rate-limit.ts';

/**
 * Counts requests with unknown keys by address. Beyond the limit they get 429 instead of 401, so that clients that
 * retry with a wrong key slow down. A valid key is never affected by the unknown keys of others, since many clients may
 * share an address.
 */
export class UnknownKeyLimiter {
  readonly #limit;

  constructor(limits: () => Limits, services: RateLimitServices) {
    const limit = (): number => limits().unknownKeysPerMinute;
    this.#limit = perMinute(
      'unknown-keys',
      {
        standardHeaders: false,
        limit,
        skip: () => limit() === Infinity,
        keyGenerator: ({ ip }) => ipKeyGenerator(ip ?? ''),
        handler: (request, _response, next) => next(limitExceeded(request)),
      },
      services,
    );
  }

  /** Counts a request with an unknown key. @throws ApiError `rate_limited` beyond the limit */
  async count(request: Request, response: Response): Promise<void> {
    await countRequest(this.#limit, request, response);
  }
}

function limitExceeded(request: Request): ApiError {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- added by the library
  const { rateLimit } = request as Partial<AugmentedRequest>;
  const ms = (rateLimit?.resetTime?.getTime() ?? 0) - Date.now();
  const retryAfter = Math.max(1, Math.ceil(ms / 1000));
  const message = `too many unknown API keys from your address: check your key and wait for ${retryAfter} s`;
  return new ApiError('rate_limited', message, { retryAfter });
}
