import { ApplicationFailure, Context } from '@temporalio/activity';
import { LRUCache } from 'lru-cache';
import type { Called } from '../src/core/attempts.ts';
import type { Appended } from '../src/core/history.ts';
import { failUnlessTransient } from '../src/engine/retry.ts';
import { onAbort } from '../src/lib/abort.ts';
import { GIVEN_UP, stopReason, withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import type { OwnAttempts } from '../src/temporal/own-attempts.ts';

/** Work that was started, and whose result is not stored yet. */
interface Running<R> {
  ran: Promise<R>;
  cancel: () => void;
}

/** The limit of the results that a host keeps, in characters of JSON: far more than may be repeated at once. */
const MAX_REMEMBERED = 64 * 1024 * 1024;

interface Work<R, S> {
  /** Identifies it in the life of the host. */
  key: string;
  /**
   * Prepares an attempt; a failure is retried. The returned function starts the work, which `signal` interrupts. It
   * rejects only before the work has done anything: then the work is started again.
   */
  prepare: (signal: AbortSignal) => Promise<(signal: AbortSignal) => Promise<R>>;
  store: (result: R) => Promise<S>;
  /** The result of work that is cancelled before it has started. */
  notStarted: () => S;
  called?: () => Called;
}

/**
 * Runs the activities of a host. Each one is started once in the life of the host: an attempt that finds it started
 * waits for its end. So attempts may be lost and repeated, and only the loss of the host makes an outcome unknown.
 */
export class StartedOnce<R, S extends Appended> {
  readonly #running = new Map<string, Running<R>>();
  readonly #ended = new LRUCache<string, S>({
    maxSize: MAX_REMEMBERED,
    sizeCalculation: (end) => JSON.stringify(end).length,
  });

  async run({ key, prepare, store, notStarted, called = () => ({}) }: Work<R, S>): Promise<S> {
    const context = Context.current();
    const { cancellationSignal: signal } = context;
    const isCancelled = (): boolean => signal.aborted && stopReason(context) === 'cancelled';
    const cancel = (): void => {
      if (isCancelled()) this.#running.get(key)?.cancel();
    };
    const stopListening = onAbort(signal, cancel);
    /** The result of the work; undefined if it was not started. */
    const resultOfStarted = async (): Promise<S | undefined> => {
      const running = this.#running.get(key);
      if (!running) return this.#ended.get(key);
      const stored = await store(await running.ran);
      this.#ended.set(key, stored);
      this.#running.delete(key);
      return stored;
    };
    const attempt = async (): Promise<S> => {
      const known = await resultOfStarted();
      if (known) return known;
      const start = await prepare(signal).catch((error: unknown) => {
        if (isCancelled() && !this.#running.has(key)) return undefined;
        throw error;
      });
      if (!start) return notStarted();
      // Another attempt may have started the work meanwhile.
      if (!this.#running.has(key) && !this.#ended.has(key)) this.#begin(key, start);
      cancel();
      const result = await resultOfStarted();
      if (!result) throw new Error('what was started has no result');
      return result;
    };
    /** Lost attempts, such as those of a busy host, do not end the work. */
    const giveUp = async (attempts: OwnAttempts): Promise<S> => {
      const result = await failUnlessTransient(resultOfStarted);
      if (result) return attempts.addTo(result);
      throw ApplicationFailure.nonRetryable(GIVEN_UP, 'attempts_lost');
    };
    try {
      return await withHeartbeat(async (attempts) => attempts.addTo(await failUnlessTransient(attempt)), {
        called,
        giveUp,
      });
    } finally {
      stopListening();
    }
  }

  #begin(key: string, start: (signal: AbortSignal) => Promise<R>): void {
    const cancelled = new AbortController();
    const ran = start(cancelled.signal);
    this.#running.set(key, { ran, cancel: () => cancelled.abort() });
    ran.catch(() => this.#running.delete(key));
  }
}
