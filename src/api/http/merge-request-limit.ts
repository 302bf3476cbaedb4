import type { Request, Response } from 'express';
import type { AugmentedRequest } from 'express-rate-limit';
import { ApiError } from './errors.ts';
import type { Limits } from '../../engine/limits.ts';
import { count, perMinute, type RateLimitServices } from './rate-limit.ts';
import { contextOf, setContext } from './request.ts';

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
          const tooMany = new ApiError('rate_limited', message, { retryAfter });
          // A repetition is not one too many, but to find out whether it is one its body has to be read.
          // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what the library has made of it
          const { rateLimit } = request as Partial<AugmentedRequest>;
          const isFarTooMany = (rateLimit?.used ?? 0) > REPEATS * limit();
          setContext(response, { tooMany });
          next(isFarTooMany ? tooMany : undefined);
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
