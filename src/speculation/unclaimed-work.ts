import type { LiveBus } from '../live/bus.ts';
import { linkSignal, onAbort } from '../lib/abort.ts';
import type { SpeculativeStepOutcome } from '../telemetry/metrics.ts';

/** The activity that claims the work starts within milliseconds on a worker that has its workflow. */
const UNCLAIMED_MS = 10_000;

/**
 * How long nothing is begun after work was not claimed: the activities of this worker's turns go to other workers, as
 * they do without eager dispatch, and the work would cost its tokens again and again.
 */
const PAUSE_MS = 60_000;

/** Work beyond this number is not begun. */
const MAX_UNCLAIMED = 500;

interface UnclaimedWorkOptions {
  bus: Pick<LiveBus, 'onHint'>;
  draining: AbortSignal;
  /** Called when work is claimed, or ended before. */
  onEnd: (outcome: SpeculativeStepOutcome) => void;
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
  #pausedUntil = 0;

  constructor(options: UnclaimedWorkOptions) {
    this.#options = options;
  }

  /** Starts work, which the signal ends. Returns whether it has begun: `start` may return nothing. */
  begin(key: string, turnId: string, start: (signal: AbortSignal) => T | undefined): boolean {
    const { bus, draining } = this.#options;
    if (draining.aborted || this.#unclaimed.size >= MAX_UNCLAIMED || performance.now() < this.#pausedUntil)
      return false;
    const earlier = this.#unclaimed.get(key);
    if (earlier) this.#end(key, earlier, 'mismatched');
    const controller = new AbortController();
    const value = start(controller.signal);
    if (value === undefined) return false;
    const release = (): void => {
      clearTimeout(expiry);
      for (const stopListening of listening) stopListening();
    };
    const begun: Unclaimed<T> = { value, controller, release };
    const withdraw = (): void => this.#end(key, begun, 'withdrawn');
    const listening = [onAbort(draining, withdraw), bus.onHint(`cancel:${turnId}`, withdraw)];
    const expiry = setTimeout(() => {
      this.#pausedUntil = performance.now() + PAUSE_MS;
      this.#end(key, begun, 'expired');
    }, UNCLAIMED_MS).unref();
    this.#unclaimed.set(key, begun);
    return true;
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

  /** Ends the work of a key, if there is any: it will not be asked for. */
  withdraw(key: string): void {
    const begun = this.#unclaimed.get(key);
    if (begun) this.#end(key, begun, 'withdrawn');
  }

  #end(key: string, begun: Unclaimed<T>, outcome: SpeculativeStepOutcome): void {
    this.#unclaimed.delete(key);
    begun.release();
    if (outcome !== 'claimed') begun.controller.abort();
    this.#options.onEnd(outcome);
  }
}
