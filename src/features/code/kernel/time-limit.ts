/** A time limit that can be paused. */
export class TimeLimit {
  #remainingMs: number;
  readonly #onReached: () => void;
  #timer: NodeJS.Timeout | undefined;
  #startedAt = 0;

  /** The limit is paused until `start`. @param onReached called once */
  constructor(ms: number, onReached: () => void) {
    this.#remainingMs = ms;
    this.#onReached = onReached;
  }

  start(): void {
    this.#startedAt = performance.now();
    this.#timer = setTimeout(() => this.#onReached(), Math.max(0, this.#remainingMs));
  }

  stop(): void {
    if (!this.#timer) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#remainingMs -= performance.now() - this.#startedAt;
  }

  /** The remaining milliseconds; valid while the limit is paused. */
  get leftMs(): number {
    return this.#remainingMs;
  }

  /** Counts time that has passed during the pause. False if the limit is reached. */
  spend(ms: number): boolean {
    this.#remainingMs -= ms;
    return this.#remainingMs > 0;
  }
}
