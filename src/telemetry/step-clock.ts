import { LRUCache } from 'lru-cache';
import type { Histogram } from 'prom-client';
import { logContext } from './log-context.ts';

interface TurnCalls {
  running: number;
  /** When the last of them ended well, if none runs. */
  endedAt: number | undefined;
}

/**
 * Measures what a turn's time is spent on beside its models and tools: from the end of one call, or of the last of
 * several, to the beginning of the next. What waits on purpose, for a failed provider, is left out; so is what the clocks
 * of two processes would have to be compared for.
 */
export class StepClock {
  readonly #overhead: Histogram;
  readonly #turns = new LRUCache<string, TurnCalls>({ max: 10_000 });

  /** `overhead`: of seconds. */
  constructor(overhead: Histogram) {
    this.#overhead = overhead;
  }

  /** A call begins, for the turn in whose scope this is. Returns what to call when it ends. */
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
