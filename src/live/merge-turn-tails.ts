import type { Logger } from 'pino';
import type { TurnLogs } from '../engine/turn-log-reader.ts';
import { beyondRequest } from '../telemetry/log-context.ts';
import type { LiveBus } from './bus.ts';
import { FeedBudget } from './feed-budget.ts';
import { TurnTail } from './turn-tail.ts';

/** A reader's hold on a turn's tail. */
export interface TailLease {
  tail: TurnTail;
  /** Follows the log from now on. */
  run(): void;
  release(): void;
}

interface Shared {
  tail: TurnTail;
  leases: number;
  running: boolean;
}

/** The tails of this process: one for each turn that somebody watches. */
export class TurnTails {
  readonly #options: { logs: TurnLogs; bus: LiveBus; log: Logger };
  readonly #budget = new FeedBudget();
  readonly #tails = new Map<string, Shared>();

  constructor(options: { logs: TurnLogs; bus: LiveBus; log: Logger }) {
    this.#options = options;
  }

  /** Listens to a turn, which may not have begun. */
  lease(turnId: string): TailLease {
    const known = this.#tails.get(turnId);
    const shared: Shared = known ?? {
      tail: beyondRequest(() => new TurnTail({ ...this.#options, budget: this.#budget, turnId })),
      leases: 0,
      running: false,
    };
    this.#tails.set(turnId, shared);
    shared.leases += 1;
    let released = false;
    return {
      tail: shared.tail,
      run: () => {
        if (!shared.running) void beyondRequest(() => shared.tail.run());
        shared.running = true;
      },
      release: () => {
        if (released) return;
        released = true;
        shared.leases -= 1;
        if (shared.leases > 0) return;
        shared.tail.stop();
        shared.tail.feed.close();
        if (this.#tails.get(turnId) === shared) this.#tails.delete(turnId);
      },
    };
  }
}
