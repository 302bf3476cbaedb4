import { onAbort } from '../lib/abort.ts';

/**
 * The pause before each read. Each commit to a history ends a long poll, and only some of them add to the log; after a
 * short pause one read returns several.
 */
const PAUSE_MS = 10;

/** How long after a hint the reader polls: what was announced is committed in this time, unless Temporal is slow. */
const POLLED_MS = 50;

/** How long the reader waits for a hint before it polls without one. */
const UNHINTED_MS = 1_000;

/**
 * The moments at which the tail of a turn reads its history: when the bus has hinted that the log grows, and otherwise
 * seldom. A read costs a turn 1 ms of processor time here and another in Temporal, and most commits to a history add
 * nothing to the log.
 *
 * Hints may be lost. Nothing is missed then, because a read after `UNHINTED_MS` is a long poll, which lasts until the
 * next commit.
 */
export class ReadPace {
  readonly #stop: AbortSignal;
  #pollsUntil = 0;
  #hinted: () => void = () => undefined;
  #stopped: () => void = () => undefined;

  constructor(stop: AbortSignal) {
    this.#stop = stop;
    onAbort(stop, () => this.#stopped());
  }

  /** The log is about to grow. */
  hint(): void {
    this.#pollsUntil = performance.now() + POLLED_MS;
    this.#hinted();
  }

  /** Resolves when the history should be read, and rejects when the reader stops. */
  async next(): Promise<void> {
    if (performance.now() >= this.#pollsUntil) await this.#wait(UNHINTED_MS, (end) => (this.#hinted = end));
    await this.#wait(PAUSE_MS);
  }

  /** Waits so long, or until the function that `onStart` gets is called. */
  async #wait(ms: number, onStart?: (end: () => void) => void): Promise<void> {
    this.#stop.throwIfAborted();
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      const end = (): void => {
        clearTimeout(timer);
        resolve();
      };
      this.#stopped = end;
      onStart?.(end);
    });
    this.#stop.throwIfAborted();
  }
}
