import { LRUCache } from 'lru-cache';
import type { LiveBus } from '../../live/bus.ts';
import { linkSignal, onAbort } from '../../lib/abort.ts';
import type { SpeculativeStepOutcome } from '../../telemetry/metrics.ts';

/** The activity that claims the work starts within milliseconds on a worker that has its workflow. */
export const UNCLAIMED_MS = 10_000;

/**
 * How long nothing is begun for a subject whose work was not claimed: the activities of its turns go to other workers, as
 * they do without eager dispatch, and the work would cost its tokens again and again.
 */
const STOP_MS = 60_000;

const MAX_STOPPED = 10_000;

/** Work beyond this number is not begun. */
const MAX_UNCLAIMED = 500;

interface UnclaimedWorkOptions {
  bus: Pick<LiveBus, 'onHint'>;
  draining: AbortSignal;
  /** The milliseconds from its beginning after which the work ends if it is not claimed. */
  keptMs: number;
  /** What a command to its turn does to the work: it is kept, because the turn still asks for it, or withdrawn. */
  onCommand: 'keep' | 'withdraw';
  /** Called when work is claimed, or ended before. */
  onEnd: (outcome: SpeculativeStepOutcome) => void;
}

/** Whose work it is. */
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
 * Work of this worker's turns that began before their workflows have asked for it, by keys. It ends if it is not claimed
 * in time, if its turn is cancelled, and if this worker drains.
 */
export class UnclaimedWork<T> {
  readonly #options: UnclaimedWorkOptions;
  readonly #unclaimed = new Map<string, Unclaimed<T>>();
  /** When something is begun again for subjects, by `performance.now()`. */
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
      // A turn that is paused claims nothing.
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

  /** The work of a key, if it was begun: it stays unclaimed. */
  peek(key: string): T | undefined {
    return this.#unclaimed.get(key)?.value;
  }

  /** The work, if it was begun and is what is asked for. From now on `signal` ends it, until `release` is called. */
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
