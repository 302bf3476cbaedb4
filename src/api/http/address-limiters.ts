import type { Request, Response } from 'express';
import { ipKeyGenerator, type AugmentedRequest } from 'express-rate-limit';
import { ApiError } from './errors.ts';
import type { Limits } from '../../engine/limits.ts';
import { countRequest, perMinute, type RateLimitServices } from './rate-limit.ts';

interface AddressLimitOptions {
  /** Of the counter. */
  name: string;
  /** Per minute. */
  limit: () => number;
  /** What exceeds the limit, and what to do about it. */
  problem: { what: string; hint: string };
}

/** Counts the requests of each address. */
class AddressLimiter {
  readonly #limit;

  constructor({ name, limit, problem }: AddressLimitOptions, services: RateLimitServices) {
    this.#limit = perMinute(
      name,
      {
        standardHeaders: false,
        limit,
        skip: () => limit() === Infinity,
        keyGenerator: ({ ip }) => ipKeyGenerator(ip ?? ''),
        handler: (request, _response, next) => next(limitExceeded(request, problem)),
      },
      services,
    );
  }

  /** Counts a request. @throws ApiError `rate_limited` beyond the limit */
  async count(request: Request, response: Response): Promise<void> {
    await countRequest(this.#limit, request, response);
  }
}

/**
 * Counts requests with unknown keys or forged tokens by address. Beyond the limit they get 429 instead of 401, so that clients that
 * retry with a wrong key slow down. A valid one is never affected by those of others, since many clients may share an
 * address.
 */
export class UnknownKeyLimiter extends AddressLimiter {
  constructor(limits: () => Limits, services: RateLimitServices) {
    const problem = { what: 'unknown API keys or tokens', hint: 'check yours and wait' };
    super({ name: 'unknown-keys', limit: () => limits().unknownKeysPerMinute, problem }, services);
  }
}

/** Limits the requests without a key, where none is needed: an address may make as many as a subject. */
export class PublicLimiter extends AddressLimiter {
  constructor(limits: () => Limits, services: RateLimitServices) {
    const problem = { what: 'requests', hint: 'wait' };
    super({ name: 'public', limit: () => limits().requestsPerMinute, problem }, services);
  }
}

function limitExceeded(request: Request, { what, hint }: AddressLimitOptions['problem']): ApiError {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- added by the library
  const { rateLimit } = request as Partial<AugmentedRequest>;
  const ms = (rateLimit?.resetTime?.getTime() ?? 0) - Date.now();
  const retryAfter = Math.max(1, Math.ceil(ms / 1000));
  const message = `too many ${what} from your address: ${hint} for ${retryAfter} s`;
  return new ApiError('rate_limited', message, { retryAfter });
}
