import type { Request, Response } from 'express';
import { ipKeyGenerator } from 'express-rate-limit';
import { LRUCache } from 'lru-cache';
import { sha256 } from '../hash.ts';
import { ApiError } from './errors.ts';
import type { Limits } from './limits.ts';
import { count, perMinute, type RateLimitServices } from './rate-limit.ts';

/** A key that was right is not taken for a guess for so long. */
const PROVEN_FOR_MS = 3_600_000;
const MAX_PROVEN = 100_000;

/**
 * Slows down who tries keys. Counted are unknown keys, by address; an address that has sent too many of them can try no
 * further key for the rest of the minute. Keys that were right there go on working: many people may be behind one address.
 */
export class KeyGuesses {
  readonly #limits: () => Limits;
  readonly #limit;
  readonly #proven = new LRUCache<string, true>({ max: MAX_PROVEN, ttl: PROVEN_FOR_MS });

  constructor(limits: () => Limits, services: RateLimitServices) {
    this.#limits = limits;
    this.#limit = perMinute(
      'unknown-keys',
      {
        standardHeaders: false,
        limit: () => limits().unknownKeysPerMinute,
        keyGenerator: addressOf,
        handler: (_request, _response, next) => next(),
      },
      services,
    );
  }

  /** @throws ApiError `rate_limited` if no key may be tried from there now */
  async check(request: Request, key: string): Promise<void> {
    const limit = this.#limits().unknownKeysPerMinute;
    if (limit === Infinity || this.#proven.has(proof(request, key))) return;
    const counted = await Promise.resolve(this.#limit.getKey(addressOf(request))).catch(() => undefined);
    if (!counted || !(counted.totalHits >= limit)) return;
    const ms = (counted.resetTime?.getTime() ?? 0) - Date.now();
    const retryAfter = Math.max(1, Math.ceil(ms / 1000));
    const message = `too many unknown API keys have come from your address: wait for ${retryAfter} s`;
    throw new ApiError('rate_limited', message, { retryAfter });
  }

  right(request: Request, key: string): void {
    this.#proven.set(proof(request, key), true);
  }

  async wrong(request: Request, response: Response): Promise<void> {
    if (this.#limits().unknownKeysPerMinute < Infinity) await count(this.#limit, request, response);
  }
}

function addressOf({ ip }: Request): string {
  return ipKeyGenerator(ip ?? '');
}

function proof(request: Request, key: string): string {
  return sha256(`${addressOf(request)} ${key}`);
}
