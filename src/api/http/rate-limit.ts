import { createHash } from 'node:crypto';
import type { Request, Response } from 'express';
import { ipKeyGenerator, rateLimit, type AugmentedRequest, type Options } from 'express-rate-limit';
import type { Logger } from 'pino';
import { RedisStore } from 'rate-limit-redis';
import type { Config } from '../../config.ts';
import { withTimeout } from '../../lib/timeout.ts';
import { redisPrefix, type Redis } from '../../lib/redis.ts';
import { ApiError } from './errors.ts';
import type { Limits } from '../../engine/limits.ts';
import { contextOf, setContext } from './request.ts';

/** The services of all rate limits. */
interface RateLimitServices {
  /** With Redis, all processes share one count; without it, each process counts separately. */
  redis: Redis | undefined;
  config: Pick<Config, 'temporal'>;
  log: Logger;
}

const WINDOW_MS = 60_000;

/** The longest that a request waits for Redis. */
const REDIS_TIMEOUT_MS = 1_000;

/** Counts a request. Rejects beyond a limit, with the error that the limit's handler passes to `next`. */
export type RequestLimit = (request: Request, response: Response) => Promise<void>;

/**
 * Creates a limit of requests per minute. While Redis is configured but unavailable, no request is rejected: a failure
 * of the protection must not become an outage.
 */
function perMinute(
  name: string,
  { limit, ...options }: Partial<Options> & { limit: () => number },
  { redis, config, log }: RateLimitServices,
): RequestLimit {
  const logFailure = (error: unknown) => log.debug({ err: error }, 'requests are currently not counted');
  const count = rateLimit({
    limit,
    skip: () => limit() === Infinity,
    windowMs: WINDOW_MS,
    legacyHeaders: false,
    passOnStoreError: true,
    // The library's usage checks report deliberate choices made here as mistakes.
    validate: false,
    logger: { warn: logFailure, error: logFailure },
    ...(redis && { store: redisStore(redis, `${redisPrefix(config.temporal)}${name}:`) }),
    ...options,
  });
  // Outside of the chain of handlers.
  return (request, response) =>
    new Promise<void>((resolve, reject) => {
      const next = (error?: unknown): void => (error ? reject(error) : resolve());
      Promise.resolve(count(request, response, next)).catch(reject);
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

/**
 * Limits the requests of each subject. Beyond the limit, sets `rateLimitError` in the context of a request; the route then
 * rejects it or not.
 */
export function subjectLimit(limits: () => Limits, services: RateLimitServices): RequestLimit {
  const limit = (): number => limits().requestsPerMinute;
  return perMinute(
    'requests',
    {
      standardHeaders: 'draft-8',
      identifier: 'requests',
      limit,
      keyGenerator: (_request, response) => contextOf(response).caller.subject.subjectId,
      handler: (request, response, next) => {
        const retryAfter = Number(response.getHeader('retry-after'));
        // The route may accept the request after all.
        response.removeHeader('retry-after');
        const message = `the limit is ${limit()} requests per minute: wait for ${retryAfter} s`;
        const rateLimitError = new ApiError('rate_limited', message, { retryAfter });
        // A repetition is allowed beyond the limit, but its body must be read to detect one.
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

/**
 * Limits the requests with unknown keys or forged tokens of each address. Beyond the limit they get 429 instead of 401, so
 * that clients that retry with a wrong key slow down. A valid key or token is never affected by unknown ones of others,
 * since many clients may share an address.
 */
export function unknownKeyLimit(limits: () => Limits, services: RateLimitServices): RequestLimit {
  const message = 'too many unknown API keys or tokens from your address: check yours and wait';
  return addressLimit('unknown-keys', { limit: () => limits().unknownKeysPerMinute, message }, services);
}

/** Limits the requests without a key, where none is needed: an address may make as many as a subject. */
export function publicLimit(limits: () => Limits, services: RateLimitServices): RequestLimit {
  const message = 'too many requests from your address: wait';
  return addressLimit('public', { limit: () => limits().requestsPerMinute, message }, services);
}

/** Rejects with ApiError `rate_limited`, whose message continues with the seconds to wait. */
function addressLimit(
  name: string,
  { limit, message }: { limit: () => number; message: string },
  services: RateLimitServices,
): RequestLimit {
  const limitExceeded = (request: Request): ApiError => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- added by the library
    const { rateLimit } = request as Partial<AugmentedRequest>;
    const ms = (rateLimit?.resetTime?.getTime() ?? 0) - Date.now();
    const retryAfter = Math.max(1, Math.ceil(ms / 1000));
    return new ApiError('rate_limited', `${message} for ${retryAfter} s`, { retryAfter });
  };
  return perMinute(
    name,
    {
      standardHeaders: false,
      limit,
      keyGenerator: ({ ip }) => ipKeyGenerator(ip ?? ''),
      handler: (request, _response, next) => next(limitExceeded(request)),
    },
    services,
  );
}
