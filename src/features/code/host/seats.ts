import { onAbort } from '../../../lib/abort.ts';
import { NamedError } from '../../../lib/errors.ts';

/** No kernel became free in time. */
export class NoSeat extends NamedError {}

/** The seat of one kernel on its host. */
export interface Seat {
  /** Called when a cell runs: the kernel is not evicted. */
  use: () => void;
  /** Called when no cell runs: the kernel may be evicted. */
  rest: () => void;
  leave: () => void;
}

/** A kernel that needs a seat. */
interface Sitter {
  /** The subject that owns the kernel. */
  subject: string;
  /** Its thread may have ended, so it is evicted before other kernels. */
  isSubAgent: boolean;
  /** Ends the kernel. */
  evict: () => Promise<void>;
}

interface Taken extends Sitter {
  isUsed: boolean;
}

interface SeatsOptions {
  capacity: number;
  /** The maximum number of kernels of one subject. */
  perSubject: () => number;
  onEvict?: () => void;
  /** How long a cell waits for a seat, in milliseconds. */
  waitMs?: number;
}

/**
 * Limits how many kernels a host runs at once, in total and per subject. If a limit is reached, the longest idle kernel
 * is evicted, those of sub-agents first; at the limit of a subject, only its own kernels are.
 */
export class Seats {
  readonly #options: SeatsOptions;
  /** In the order of their last use. */
  readonly #taken = new Set<Taken>();
  readonly #waiting = new Set<() => void>();

  constructor(options: SeatsOptions) {
    this.#options = options;
  }

  get taken(): number {
    return this.#taken.size;
  }

  /** @throws NoSeat, or the reason of the signal */
  async take(sitter: Sitter, signal: AbortSignal): Promise<Seat> {
    const { subject } = sitter;
    const { waitMs = 60_000 } = this.#options;
    const deadline = Date.now() + waitMs;
    for (let full = this.#fullFor(subject); full; full = this.#fullFor(subject)) {
      signal.throwIfAborted();
      const all = full.kernels.filter(({ isUsed }) => !isUsed);
      const resting = all.find(({ isSubAgent }) => isSubAgent) ?? all[0];
      if (resting) {
        this.#taken.delete(resting);
        this.#options.onEvict?.();
        await resting.evict();
      } else if (Date.now() >= deadline) {
        throw new NoSeat(
          `all ${full.kernels.length} kernels of ${full.whose} were busy for ${waitMs / 1000} s: try again`,
        );
      } else await this.#changedBefore(deadline, signal);
    }
    const own: Taken = { ...sitter, isUsed: true };
    this.#taken.add(own);
    const move = (isUsed: boolean): void => {
      if (!this.#taken.delete(own)) return;
      own.isUsed = isUsed;
      this.#taken.add(own);
      this.#changed();
    };
    const leave = (): void => {
      if (this.#taken.delete(own)) this.#changed();
    };
    return { use: () => move(true), rest: () => move(false), leave };
  }

  /** Whether the subject can have another kernel without an eviction. */
  hasRoomFor(subject: string): boolean {
    return this.#fullFor(subject) === undefined;
  }

  /** The kernels of which one has to end before the subject gets another one; undefined if there is a free seat. */
  #fullFor(subject: string): { kernels: Taken[]; whose: string } | undefined {
    const all = [...this.#taken];
    const own = all.filter((one) => one.subject === subject);
    if (own.length >= this.#options.perSubject()) return { kernels: own, whose: 'the subject' };
    return all.length >= this.#options.capacity ? { kernels: all, whose: 'this host' } : undefined;
  }

  async #changedBefore(deadline: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.add(resolve);
    const timer = setTimeout(resolve, deadline - Date.now());
    const stopListening = onAbort(signal, resolve);
    await promise;
    stopListening();
    clearTimeout(timer);
    this.#waiting.delete(resolve);
  }

  #changed(): void {
    for (const wake of this.#waiting) wake();
  }
}
