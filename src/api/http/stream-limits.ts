import type { Response } from 'express';
import type { Caller } from '../../core/subject.ts';
import { ApiError } from './errors.ts';
import type { Limits } from '../../engine/limits.ts';

/**
 * Limits the open event streams of this process, per subject and in total: each takes a connection, and memory while
 * its reader is slow.
 */
export class StreamLimits {
  readonly #limits: () => Limits;
  /** By subject. */
  readonly #open = new Map<string, number>();

  constructor(limits: () => Limits) {
    this.#limits = limits;
  }

  /**
   * Admits a stream until its response is closed. Call it before any effect of the request: a rejected request must
   * have none.
   * @throws ApiError `too_many_streams`
   */
  admit({ subject: { subjectId: subject } }: Caller, response: Response): void {
    const { streams, streamsPerSubject } = this.#limits();
    const own = this.#open.get(subject) ?? 0;
    if (own >= streamsPerSubject) {
      throw new ApiError('too_many_streams', `${own} of your streams are open, which is the limit: close one`);
    }
    const all = this.#open.values().reduce((sum, count) => sum + count, 0);
    if (all >= streams)
      throw new ApiError('too_many_streams', `${all} streams are open on this server, which is the limit: retry`);
    if (response.closed) return;
    this.#open.set(subject, own + 1);
    response.once('close', () => {
      const left = (this.#open.get(subject) ?? 0) - 1;
      if (left > 0) this.#open.set(subject, left);
      else this.#open.delete(subject);
    });
  }
}
