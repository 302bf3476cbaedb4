import type { TurnFeed } from '../../live/turn-feed.ts';
import type { TailLease, TurnTail, TurnTailPool } from '../../live/turn-tail.ts';

/** How long a turn is followed after a request: a client that polls comes back within this time. */
const FOLLOW_MS = 15_000;

/** The turn of a session that this process follows, so that requests for it need not read its log again. */
export class FollowedTurn {
  readonly #tails: TurnTailPool;
  readonly #isAwaited: () => boolean;
  #lease: { turnId: string; tail: TailLease; timer: NodeJS.Timeout } | undefined;

  /** @param isAwaited whether requests wait for the turn, which is followed as long as they do */
  constructor(tails: TurnTailPool, isAwaited: () => boolean) {
    this.#tails = tails;
    this.#isAwaited = isAwaited;
  }

  /** The part of the turn's log that was read; undefined if the turn is not followed. */
  feedOf(turnId: string): TurnFeed | undefined {
    return this.#lease?.turnId === turnId ? this.#lease.tail.tail.feed : undefined;
  }

  /** Follows this turn, and no other one. */
  follow(turnId: string): TurnTail {
    if (this.#lease?.turnId !== turnId) this.stop();
    if (!this.#lease) {
      const tail = this.#tails.lease(turnId);
      tail.run();
      this.#lease = { turnId, tail, timer: setTimeout(() => this.#expire(), FOLLOW_MS).unref() };
    }
    this.#lease.timer.refresh();
    return this.#lease.tail.tail;
  }

  stop(): void {
    clearTimeout(this.#lease?.timer);
    this.#lease?.tail.release();
    this.#lease = undefined;
  }

  #expire(): void {
    if (this.#isAwaited()) this.#lease?.timer.refresh();
    else this.stop();
  }
}
