const MIN_REMEMBERED_MS = 1_000;
const MAX_REMEMBERED_MS = 30_000;

/**
 * Shares one attempt among concurrent callers, and repeats a failure to later callers for three times as long as the
 * attempt took (1 to 30 s): so at most a quarter of a caller's time is spent on a server that is down.
 */
export class SingleFlight<T> {
  #running: Promise<T> | undefined;
  #failure: { error: unknown; until: number } | undefined;
  readonly #now: () => number;

  /** @param now a monotonic clock, in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** No attempt is running and no failure is remembered. */
  get isIdle(): boolean {
    return !this.#running && !this.#remembered;
  }

  get isRunning(): boolean {
    return this.#running !== undefined;
  }

  /** Returns the outcome of the running attempt, else the remembered failure, else the outcome of a new attempt. */
  run(attempt: () => Promise<T>): Promise<T> {
    if (this.#running) return this.#running;
    if (this.#remembered) return Promise.reject(this.#remembered.error);
    const running = this.#try(attempt).finally(() => {
      this.#running = undefined;
    });
    this.#running = running;
    return running;
  }

  get #remembered(): { error: unknown } | undefined {
    return this.#failure && this.#now() < this.#failure.until ? this.#failure : undefined;
  }

  async #try(attempt: () => Promise<T>): Promise<T> {
    const startedAt = this.#now();
    try {
      const value = await attempt();
      this.#failure = undefined;
      return value;
    } catch (error) {
      const now = this.#now();
      const rememberedMs = Math.min(MAX_REMEMBERED_MS, Math.max(MIN_REMEMBERED_MS, 3 * (now - startedAt)));
      this.#failure = { error, until: now + rememberedMs };
      throw error;
    }
  }
}
