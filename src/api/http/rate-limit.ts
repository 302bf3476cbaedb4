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

/** What all rate limits of this server need. */
export interface RateLimitServices {
  /** Counts for all processes, if there is one; else each process counts for itself. */
  redis: Redis | undefined;
  config: Pick<Config, 'temporal'>;
  log: Logger;
}

const WINDOW_MS = 60_000;

/** Nobody waits longer for a Redis that hangs. */
const REDIS_MS = 1_000;

/**
 * Counts requests per minute. Where Redis counts and does not answer nobody is refused: what is there to keep the
 * service up must not take it down.
 */
export function perMinute(name: string, options: Partial<Options>, { redis, config, log }: RateLimitServices) {
  const note = (error: unknown) => log.debug({ err: error }, 'requests are not counted for the moment');
  return rateLimit({
    windowMs: WINDOW_MS,
    legacyHeaders: false,
    passOnStoreError: true,
    // It looks for mistakes in the use of the library, and takes some of our ways for such.
    validate: false,
    logger: { warn: note, error: note },
    ...(redis && { store: redisStore(redis, `${redisPrefix(config.temporal)}${name}:`) }),
    ...options,
  });
}

/** Counts a request, outside of the chain of handlers. Rejects with what a handler of the limit gives to `next`. */
export async function count(limit: RateLimitRequestHandler, request: Request, response: Response): Promise<void> {
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
        return await withTimeout(REDIS_MS, commands.sendCommand(args));
      } catch (error) {
        // Scripts go by their hash. If loading them failed, the store would not work when Redis is back; this way it
        // is told that they are missing, and loads them.
        const [command, , script = ''] = args;
        if (command === 'SCRIPT') return createHash('sha1').update(script).digest('hex');
        throw error;
      }
    },
  });
}

/** A request beyond the limit may be the repetition of one before, but nobody repeats all of theirs more than once. */
const REPEATS = 2;

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
          // The answer may be another one.
          response.removeHeader('retry-after');
          const message = `you may send ${limit()} requests a minute: wait for ${retryAfter} s`;
          const rateLimitError = new ApiError('rate_limited', message, { retryAfter });
          // A repetition is not one too many, but to find out whether it is one its body has to be read.
          // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what the library has made of it
          const { rateLimit } = request as Partial<AugmentedRequest>;
          const isFarTooMany = (rateLimit?.used ?? 0) > REPEATS * limit();
          setContext(response, { rateLimitError });
          next(isFarTooMany ? rateLimitError : undefined);
        },
      },
      services,
    );
  }

  /** Counts a request. If it is one too many its context says so, and the route acts on it. */
  async count(request: Request, response: Response): Promise<void> {
    await count(this.#limit, request, response);
  }
}
