import type { Request, Response } from 'express';
import { ipKeyGenerator, type AugmentedRequest } from 'express-rate-limit';
import { ApiError } from './errors.ts';
import type { Limits } from '../../engine/limits.ts';
import { count, perMinute, type RateLimitServices } from './rate-limit.ts';

/**
 * Counts requests with unknown keys, by address. Beyond the limit they are answered with 429 instead of 401, so that
 * clients which try again with a wrong key wait. A key that exists is never refused for the guesses of others: many
 * clients may share an address.
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
        handler: (request, _response, next) => next(tooManyGuesses(request)),
      },
      services,
    );
  }

  /** @throws ApiError `rate_limited` if the request is one too many */
  async count(request: Request, response: Response): Promise<void> {
    await count(this.#limit, request, response);
  }
}

function tooManyGuesses(request: Request): ApiError {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what the library has made of it
  const { rateLimit } = request as Partial<AugmentedRequest>;
  const ms = (rateLimit?.resetTime?.getTime() ?? 0) - Date.now();
  const retryAfter = Math.max(1, Math.ceil(ms / 1000));
  const message = `too many unknown API keys have come from your address: check your key, and wait for ${retryAfter} s`;
  return new ApiError('rate_limited', message, { retryAfter });
}
