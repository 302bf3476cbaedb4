import { LRUCache } from 'lru-cache';
import type { Histogram } from 'prom-client';
import { logContext } from './log-context.ts';

interface TurnCalls {
  running: number;
  /** When the last of them succeeded, if none is running. */
  endedAt: number | undefined;
}

/**
 * Measures the time that a turn spends outside of its models and tools: from the end of a call, or of the last of
 * several parallel calls, to the start of the next. Excluded are waits for a retry, and calls of which another process
 * made one, because their clocks cannot be compared.
 */
export class StepClock {
  readonly #overhead: Histogram;
  readonly #turns = new LRUCache<string, TurnCalls>({ max: 10_000 });

  /** @param overhead in seconds */
  constructor(overhead: Histogram) {
    this.#overhead = overhead;
  }

  /** Starts a call for the turn of the current log context. Returns a function to call when it ends. */
  begin(): (end: 'well' | 'badly') => void {
    const { turnId } = logContext();
    if (turnId === undefined) return () => undefined;
    const calls = this.#turns.get(turnId) ?? { running: 0, endedAt: undefined };
    this.#turns.set(turnId, calls);
    if (calls.endedAt !== undefined) this.#overhead.observe((performance.now() - calls.endedAt) / 1000);
    calls.running += 1;
    calls.endedAt = undefined;
    return (end) => {
      calls.running -= 1;
      if (calls.running === 0 && end === 'well') calls.endedAt = performance.now();
    };
  }
}
