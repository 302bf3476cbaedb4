import { createHash } from 'node:crypto';
import type { Request, Response } from 'express';
import { rateLimit, type Options, type RateLimitRequestHandler, type AugmentedRequest } from 'express-rate-limit';
import type { Logger } from 'pino';
import { RedisStore } from 'rate-limit-redis';
import type { Config } from '../../config.ts';
import { withTimeout } from '../../lib/timeout.ts';
import { redisPrefix, type Redis } from '../../lib/redis.ts';
import { ApiError } from './errors.ts';
import type { Limits } from '../../engine/limits.ts';
import { contextOf, setContext } from './request.ts';

/** The services of all rate limits. */
export interface RateLimitServices {
  /** With Redis, all processes share one count; without it, each process counts separately. */
  redis: Redis | undefined;
  config: Pick<Config, 'temporal'>;
  log: Logger;
}

const WINDOW_MS = 60_000;

/** The longest that a request waits for Redis. */
const REDIS_TIMEOUT_MS = 1_000;

/**
 * Creates a limit of requests per minute. While Redis is configured but unavailable, no request is rejected: a failure
 * of the protection must not become an outage.
 */
export function perMinute(name: string, options: Partial<Options>, { redis, config, log }: RateLimitServices) {
  const logFailure = (error: unknown) => log.debug({ err: error }, 'requests are currently not counted');
  return rateLimit({
    windowMs: WINDOW_MS,
    legacyHeaders: false,
    passOnStoreError: true,
    // The library's usage checks report deliberate choices made here as mistakes.
    validate: false,
    logger: { warn: logFailure, error: logFailure },
    ...(redis && { store: redisStore(redis, `${redisPrefix(config.temporal)}${name}:`) }),
    ...options,
  });
}

/**
 * Counts a request outside of the chain of handlers. Rejects with the error that the limit's handler passes to `next`.
 */
export async function countRequest(
  limit: RateLimitRequestHandler,
  request: Request,
  response: Response,
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const next = (error?: unknown): void => (error ? reject(error) : resolve());
    Promise.resolve(limit(request, response, next)).catch(reject);
  });
}

function redisStore({ commands }: Redis, prefix: string): RedisStore {
  return new RedisStore({
    prefix,
    sendCommand: async (...args) => {
      try {
        return await withTimeout(REDIS_TIMEOUT_MS, commands.sendCommand(args));
      } catch (error) {
        // The store loads its scripts once and calls them by hash. If loading failed, it would stay broken after Redis
        // recovers. With the hash computed here, its calls fail with NOSCRIPT instead, and it loads the scripts again.
        const [command, , script = ''] = args;
        if (command === 'SCRIPT') return createHash('sha1').update(script).digest('hex');
        throw error;
      }
    },
  });
}

/**
 * A request beyond the limit may repeat an earlier one, so it is rejected at once only beyond this multiple of the
 * limit: a client that repeats every request once stays within it.
 */
const HARD_LIMIT_FACTOR = 2;

/** Limits the requests of each subject. */
export class RequestLimit {
  readonly #limit;

  constructor(limits: () => Limits, services: RateLimitServices) {
    const limit = (): number => limits().requestsPerMinute;
    this.#limit = perMinute(
      'requests',
      {
        standardHeaders: 'draft-8',
        identifier: 'requests',
        limit,
        skip: () => limit() === Infinity,
        keyGenerator: (_request, response) => contextOf(response).caller.subject.subjectId,
        handler: (request, response, next) => {
          const retryAfter = Number(response.getHeader('retry-after'));
          // The route may accept the request after all.
          response.removeHeader('retry-after');
          const message = `the limit is ${limit()} requests per minute: wait for ${retryAfter} s`;
          const rateLimitError = new ApiError('rate_limited', message, { retryAfter });
          // A repetition is allowed beyond the limit, but whether a request is one is known only after reading its
          // body.
          // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- added by the library
          const { rateLimit } = request as Partial<AugmentedRequest>;
          const exceedsHardLimit = (rateLimit?.used ?? 0) > HARD_LIMIT_FACTOR * limit();
          setContext(response, { rateLimitError });
          next(exceedsHardLimit ? rateLimitError : undefined);
        },
      },
      services,
    );
  }

  /** Counts a request. Beyond the limit, sets `rateLimitError` in its context; the route then rejects it or not. */
  async count(request: Request, response: Response): Promise<void> {
    await countRequest(this.#limit, request, response);
  }
}
