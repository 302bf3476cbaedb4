import { LRUCache } from 'lru-cache';
import type { LiveBus } from '../../live/bus.ts';
import { linkSignal, onAbort } from '../../lib/abort.ts';
import type { SpeculativeStepOutcome } from '../../telemetry/metrics.ts';

/** The claim time-out: the claiming activity starts within milliseconds on a worker that has its workflow. */
export const UNCLAIMED_MS = 10_000;

/**
 * How long nothing is begun for a subject whose work was not claimed: the activities of its turns run on other workers,
 * as without eager dispatch, and further work would waste tokens.
 */
const STOP_MS = 60_000;

const MAX_STOPPED = 10_000;

/** Work beyond this number is not begun. */
const MAX_UNCLAIMED = 500;

interface UnclaimedWorkOptions {
  bus: Pick<LiveBus, 'onHint'>;
  draining: AbortSignal;
  /** Milliseconds after which unclaimed work ends. */
  keptMs: number;
  /** The effect of a command to the turn: the work is kept, because the turn will still request it, or withdrawn. */
  onCommand: 'keep' | 'withdraw';
  /** Called when work is claimed, or ends unclaimed. */
  onEnd: (outcome: SpeculativeStepOutcome) => void;
}

/** The turn and the subject of the work. */
interface WorkOwner {
  turnId: string;
  owner: { subjectId: string };
}

interface Claimed<T> {
  value: T;
  release: () => void;
}

interface Unclaimed<T> {
  value: T;
  controller: AbortController;
  release: () => void;
}

/**
 * Work of this worker's turns that began before their workflows have requested it, by keys. It ends if it is not
 * claimed in time, if its turn is cancelled, and if this worker drains.
 */
export class UnclaimedWork<T> {
  readonly #options: UnclaimedWorkOptions;
  readonly #unclaimed = new Map<string, Unclaimed<T>>();
  /** The times from which work is begun again for subjects, by `performance.now()`. */
  readonly #stoppedUntil = new LRUCache<string, number>({ max: MAX_STOPPED });

  constructor(options: UnclaimedWorkOptions) {
    this.#options = options;
  }

  /** Starts work, which the signal ends, unless `start` returns nothing. */
  begin(key: string, { turnId, owner: { subjectId } }: WorkOwner, start: (signal: AbortSignal) => T | undefined): void {
    const { bus, draining, keptMs, onCommand } = this.#options;
    const isFull = this.#unclaimed.size >= MAX_UNCLAIMED;
    const isStopped = performance.now() < (this.#stoppedUntil.get(subjectId) ?? 0);
    if (draining.aborted || isFull || isStopped) return;
    const earlier = this.#unclaimed.get(key);
    if (earlier) this.#end(key, earlier, 'mismatched');
    const controller = new AbortController();
    const value = start(controller.signal);
    if (value === undefined) return;
    const withdraw = (): void => this.#end(key, begun, 'withdrawn');
    const stop = (): void => void this.#stoppedUntil.set(subjectId, performance.now() + STOP_MS);
    const lateness = setTimeout(stop, UNCLAIMED_MS).unref();
    const expiry = setTimeout(() => this.#end(key, begun, 'expired'), keptMs).unref();
    const listening = [
      onAbort(draining, withdraw),
      bus.onHint(`cancel:${turnId}`, withdraw),
      // A paused turn claims nothing, so its work does not count as late.
      bus.onHint(`command:${turnId}`, onCommand === 'keep' ? () => clearTimeout(lateness) : withdraw),
    ];
    const release = (): void => {
      clearTimeout(lateness);
      clearTimeout(expiry);
      for (const stopListening of listening) stopListening();
    };
    const begun: Unclaimed<T> = { value, controller, release };
    this.#unclaimed.set(key, begun);
  }

  /** The work of a key, if it was begun. It stays unclaimed. */
  peek(key: string): T | undefined {
    return this.#unclaimed.get(key)?.value;
  }

  /** Claims work, if it was begun and is the requested one. `signal` then ends it, until `release` is called. */
  claim(key: string, signal: AbortSignal, isAskedFor: (value: T) => boolean = () => true): Claimed<T> | undefined {
    const begun = this.#unclaimed.get(key);
    if (!begun) return undefined;
    const isClaimed = isAskedFor(begun.value);
    this.#end(key, begun, isClaimed ? 'claimed' : 'mismatched');
    return isClaimed ? { value: begun.value, release: linkSignal(signal, begun.controller) } : undefined;
  }

  #end(key: string, begun: Unclaimed<T>, outcome: SpeculativeStepOutcome): void {
    this.#unclaimed.delete(key);
    begun.release();
    if (outcome !== 'claimed') begun.controller.abort();
    this.#options.onEnd(outcome);
  }
}
