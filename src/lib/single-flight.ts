const MIN_REMEMBERED_MS = 1_000;
const MAX_REMEMBERED_MS = 30_000;

/**
 * Does something that may fail slowly for all who ask for it at once, and remembers a failure for three times as long as
 * it took (1 to 30 s): so no more than a quarter of a caller's time is spent on a server that is down.
 */
export class SingleFlight<T> {
  #running: Promise<T> | undefined;
  #failure: { error: unknown; until: number } | undefined;
  readonly #now: () => number;

  /** `now`: milliseconds that never run backwards. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Nothing is under way, and nothing remembered. */
  get isBlank(): boolean {
    return !this.#running && !this.#remembered;
  }

  /** The outcome of the attempt that is under way, the failure that is remembered, or else of a new attempt. */
  run(attempt: () => Promise<T>): Promise<T> {
    if (this.#running) return this.#running;
    if (this.#remembered) return Promise.reject(this.#remembered.error);
    const running = this.#try(attempt).finally(() => {
      this.#running = undefined;
    });
    this.#running = running;
    return running;
  }

  /** When the attempt that is under way has come to an end, of whatever kind. */
  async settled(): Promise<void> {
    await this.#running?.catch(() => undefined);
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
