import { waitOrAbort } from '../lib/abort.ts';
import { SingleFlight } from '../lib/single-flight.ts';
import { MAX_TIMER_MS } from '../lib/timeout.ts';
import { McpServerError } from './errors.ts';
import { signInRequired } from './sign-in-required.ts';

export interface PatienceOptions {
  /** How many ms the first caller, and those that follow in this time, wait for a server that has not responded yet. */
  firstWaitMs: number;
  /** A monotonic clock in milliseconds. */
  now: () => number;
}

/** A server that fails within this time delays its callers so little that each of them may wait for the next attempt. */
const QUICK_MS = 1_000;

/**
 * How long callers wait for a server. All connections to it share one `Patience`: otherwise a server that hangs, or is
 * being installed, would delay each new conversation.
 */
export class Patience {
  readonly now: () => number;
  readonly #firstWaitMs: number;
  /** When the first caller began to wait; -Infinity if callers have waited long enough. */
  #waitingSince: number | undefined;
  #hasResponded = false;
  #first: Promise<unknown> | undefined;

  constructor({ firstWaitMs, now }: PatienceOptions) {
    this.#firstWaitMs = firstWaitMs;
    this.now = now;
  }

  /** The attempt in progress to reach a server that has never responded: a second one would start or hang beside it. */
  get firstAttempt(): Promise<unknown> | undefined {
    return this.#hasResponded ? undefined : this.#first;
  }

  /** How long a caller may wait from now on, in milliseconds. */
  begin(): number {
    this.#waitingSince ??= this.now();
    return this.#waitingSince + this.#firstWaitMs - this.now();
  }

  async attempt<T>(attempt: () => Promise<T>): Promise<T> {
    const running = attempt();
    this.#first ??= running;
    try {
      const value = await running;
      this.#responded();
      return value;
    } catch (error) {
      if (signInRequired(error)) this.#responded();
      const since = this.#waitingSince;
      this.#waitingSince = since === undefined || this.now() - since <= QUICK_MS ? undefined : -Infinity;
      throw error;
    } finally {
      if (this.#first === running) this.#first = undefined;
    }
  }

  #responded(): void {
    this.#hasResponded = true;
    this.#waitingSince = undefined;
  }
}

/**
 * Shares attempts to reach a server like `SingleFlight`, and bounds how long callers wait. The first caller waits for up
 * to `firstWaitMs`, and the attempt continues after that. Later callers do not wait at all until an attempt has succeeded:
 * otherwise a server that hangs, or is being installed, would delay every model call.
 */
export class PatientFlight<T> {
  readonly #attempts: SingleFlight<T>;
  readonly #pending: string;
  readonly #patience: Patience;
  #failure: unknown;

  /** `pending`: the state of a server that has not responded yet, as a predicate that continues after its name. */
  constructor(pending: string, patience: Patience) {
    this.#pending = pending;
    this.#patience = patience;
    this.#attempts = new SingleFlight(patience.now);
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
    for (let other = this.#otherFirst; other; other = this.#otherFirst) {
      await this.#within(
        other.catch(() => undefined),
        signal,
      );
    }
    const attempted = this.begin(attempt);
    if (!this.#attempts.isRunning) return attempted;
    attempted.catch(() => undefined);
    return this.#within(attempted, signal);
  }

  /** The attempt of another flight, for whose end this one has to wait. */
  get #otherFirst(): Promise<unknown> | undefined {
    return this.#attempts.isRunning ? undefined : this.#patience.firstAttempt;
  }

  async #within<R>(work: Promise<R>, signal: AbortSignal): Promise<R> {
    const leftMs = this.#patience.begin();
    if (leftMs <= 0) throw this.#failure ?? new McpServerError(this.#pending);
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(new McpServerError(this.#pending)), Math.min(leftMs, MAX_TIMER_MS));
    try {
      return await waitOrAbort(work, AbortSignal.any([signal, limit.signal]));
    } finally {
      clearTimeout(timer);
    }
  }

  async #attempt(attempt: () => Promise<T>): Promise<T> {
    try {
      const value = await this.#patience.attempt(attempt);
      this.#failure = undefined;
      return value;
    } catch (error) {
      this.#failure = error;
      throw error;
    }
  }
}
