import { waitOrAbort } from '../lib/abort.ts';
import { SingleFlight } from '../lib/single-flight.ts';
import { MAX_TIMER_MS } from '../lib/timeout.ts';
import { McpServerError } from './errors.ts';

export interface PatienceOptions {
  /** How long callers wait for a server that has not answered yet, in milliseconds: the first one, and all that come in this time. */
  firstWaitMs: number;
  /** A monotonic clock in milliseconds. */
  now: () => number;
}

/** A server that fails within this time delays its callers so little that each of them may wait for the next attempt. */
const QUICK_MS = 1_000;

/**
 * Shares attempts to reach a server like `SingleFlight`, and bounds how long callers wait. The first caller waits for up
 * to `firstWaitMs`, and the attempt continues after that. Later callers do not wait at all until an attempt has succeeded:
 * otherwise a server that hangs, or is being installed, would delay every model call.
 */
export class PatientFlight<T> {
  readonly #attempts: SingleFlight<T>;
  readonly #pending: string;
  readonly #options: PatienceOptions;
  /** When the first caller began to wait; -Infinity if callers have waited long enough. */
  #waitingSince: number | undefined;
  #failure: unknown;

  /** `pending`: what a server is that has not answered yet, as a predicate that continues after its name. */
  constructor(pending: string, options: PatienceOptions) {
    this.#pending = pending;
    this.#options = options;
    this.#attempts = new SingleFlight(options.now);
  }

  /** No attempt is running and no failure is remembered. */
  get isIdle(): boolean {
    return this.#attempts.isIdle;
  }

  /** Makes an attempt for which no caller waits, unless one is running or has failed recently. */
  begin(attempt: () => Promise<T>): Promise<T> {
    return this.#attempts.run(() => this.#attempt(attempt));
  }

  /** @throws the reason of the signal, the error of the attempt, or McpServerError if it has not ended yet */
  async run(attempt: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const { firstWaitMs, now } = this.#options;
    const attempted = this.begin(attempt);
    if (!this.#attempts.isRunning) return attempted;
    attempted.catch(() => undefined);
    this.#waitingSince ??= now();
    const leftMs = this.#waitingSince + firstWaitMs - now();
    if (leftMs <= 0) throw this.#failure ?? new McpServerError(this.#pending);
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(new McpServerError(this.#pending)), Math.min(leftMs, MAX_TIMER_MS));
    try {
      return await waitOrAbort(attempted, AbortSignal.any([signal, limit.signal]));
    } finally {
      clearTimeout(timer);
    }
  }

  async #attempt(attempt: () => Promise<T>): Promise<T> {
    const { now } = this.#options;
    try {
      const value = await attempt();
      this.#failure = undefined;
      this.#waitingSince = undefined;
      return value;
    } catch (error) {
      this.#failure = error;
      const since = this.#waitingSince;
      this.#waitingSince = since === undefined || now() - since <= QUICK_MS ? undefined : -Infinity;
      throw error;
    }
  }
}
