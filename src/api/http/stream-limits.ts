import type { Response } from 'express';
import type { Caller } from '../../core/subject.ts';
import { ApiError } from './errors.ts';
import type { Limits } from '../../engine/limits.ts';

/**
 * Limits the event streams that are open in this process, of each subject and in all: each takes a connection, and
 * memory while its reader is behind.
 */
export class StreamLimits {
  readonly #limits: () => Limits;
  /** By subject. */
  readonly #open = new Map<string, number>();

  constructor(limits: () => Limits) {
    this.#limits = limits;
  }

  /**
   * Lets a stream in, until its response is closed. Before anything is written: a stream that is refused must have done
   * nothing.
   * @throws ApiError `too_many_streams`
   */
  admit({ subject: { subjectId: subject } }: Caller, response: Response): void {
    const { streams, streamsPerSubject } = this.#limits();
    const own = this.#open.get(subject) ?? 0;
    if (own >= streamsPerSubject) {
      throw new ApiError('too_many_streams', `${own} of your streams are open, and no more may: close one`);
    }
    const all = this.#open.values().reduce((sum, count) => sum + count, 0);
    if (all >= streams) throw new ApiError('too_many_streams', `${all} streams are open here: try again soon`);
    if (response.closed) return;
    this.#open.set(subject, own + 1);
    response.once('close', () => {
      const left = (this.#open.get(subject) ?? 0) - 1;
      if (left > 0) this.#open.set(subject, left);
      else this.#open.delete(subject);
    });
  }
}
