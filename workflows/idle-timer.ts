import { condition, sleep } from '@temporalio/workflow';
import type { IdleTime } from '../src/core/session.ts';

/**
 * Waits until a session has been at rest, without a command, for its idle time.
 *
 * A command does not cancel the timer, since a timer for each turn would cost two events: when the timer fires, another
 * one waits for the rest of the time. A session that is not at rest has no timer, except for one that it had before.
 */
export class IdleTimer {
  readonly #isAtRest: () => boolean;
  #time: IdleTime | undefined;

  /** @param time absent for a session without an idle time, and for one that gets it by `begin` */
  constructor(time: IdleTime | undefined, isAtRest: () => boolean) {
    this.#time = time;
    this.#isAtRest = isAtRest;
  }

  get time(): IdleTime | undefined {
    return this.#time;
  }

  begin(seconds: number): void {
    this.#time = { seconds, since: Date.now() };
  }

  /** A command is carried out, or a turn has ended. */
  restart(): void {
    if (this.#time) this.begin(this.#time.seconds);
  }

  /** Resolves when the idle time has passed; without one, never. */
  async untilOver(): Promise<void> {
    for (;;) {
      await condition(() => this.#time !== undefined && this.#isAtRest());
      const left = this.#leftMs;
      if (left <= 0) return;
      await sleep(left);
    }
  }

  get #leftMs(): number {
    if (!this.#time) return Infinity;
    const { seconds, since } = this.#time;
    return Math.ceil(since + seconds * 1000 - Date.now());
  }
}
