import type { Request, Response } from 'express';
import { ApiError } from './errors.ts';
import type { Limits } from './limits.ts';
import { count, perMinute, type RateLimitServices } from './rate-limit.ts';
import { contextOf } from './request.ts';

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
        handler: (_request, response, next) => {
          const retryAfter = Number(response.getHeader('retry-after'));
          // The answer may be another one.
          response.removeHeader('retry-after');
          const message = `you may send ${limit()} requests a minute: wait for ${retryAfter} s`;
          contextOf(response).tooMany = new ApiError('rate_limited', message, { retryAfter });
          next();
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
