import type { SessionWatch } from '../../features/session-stream/session-watches.ts';
import { onAbort } from '../../lib/abort.ts';
import { withoutRequest } from '../../telemetry/log-context.ts';

/** What the waiters of a session wait for. */
interface GrowingSession {
  readonly count: number;
  refresh(): Promise<void>;
  /** Watches for new turns; `onDeleted` is called when the session was deleted. */
  watch(onDeleted: () => void): SessionWatch;
  /** Resolves when there may be something to read, and when the watch is disposed of. */
  untilNews(watch: SessionWatch): Promise<void>;
}

interface Waiter {
  position: number;
  resolve: () => void;
  reject: (error: unknown) => void;
}

/**
 * The requests of this process that wait for events of one session. They share one watch of the session, and one read
 * after each of its notifications: a further waiter costs only a timer.
 */
export class SessionWaiters {
  readonly #session: GrowingSession;
  readonly #waiters = new Set<Waiter>();
  #watching: AbortController | undefined;

  constructor(session: GrowingSession) {
    this.#session = session;
  }

  get size(): number {
    return this.#waiters.size;
  }

  /**
   * Waits until the session has more than `position` events, it is deleted, the time has passed, or `signal` aborts.
   * The caller has read the session, and has not awaited anything since. @throws Error if the session cannot be read
   */
  async wait(position: number, { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal }): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter = { position, resolve, reject };
    const timer = setTimeout(resolve, timeoutMs);
    this.#waiters.add(waiter);
    const stopListening = onAbort(signal, resolve);
    if (!this.#watching) this.#watch();
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      stopListening();
      this.#waiters.delete(waiter);
      if (this.#waiters.size === 0) this.#stop();
    }
  }

  /** The session has `count` events now. */
  grown(count: number): void {
    for (const { position, resolve } of this.#waiters) if (position < count) resolve();
  }

  #watch(): void {
    const watching = new AbortController();
    this.#watching = watching;
    void withoutRequest(() => this.#follow(watching));
  }

  #stop(): void {
    this.#watching?.abort();
    this.#watching = undefined;
  }

  /** Never rejects. */
  async #follow(watching: AbortController): Promise<void> {
    const { signal } = watching;
    using watch = this.#session.watch(() => {
      for (const { resolve } of this.#waiters) resolve();
    });
    onAbort(signal, () => watch[Symbol.dispose]());
    try {
      while (!signal.aborted) {
        // After the watch has begun, so that nothing is missed between the two.
        await this.#session.refresh();
        this.grown(this.#session.count);
        await this.#session.untilNews(watch);
      }
    } catch (error) {
      if (signal.aborted) return;
      // The waiting requests get the error; the next one starts a new watch.
      this.#stop();
      for (const { reject } of this.#waiters) reject(error);
    }
  }
}
