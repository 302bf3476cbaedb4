import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { LogEntry } from '../core/records.ts';
import { TurnNotFound, type TurnLogReader } from '../engine/turn-log-reader.ts';
import { isUnavailable } from '../engine/unavailable.ts';
import type { LiveBus } from './bus.ts';
import { FeedBudget } from './feed-budget.ts';
import { TurnFeed } from './turn-feed.ts';
import { backoffMs } from '../lib/backoff.ts';
import { withoutRequest } from '../telemetry/log-context.ts';

interface TailOptions {
  turnId: string;
  logs: TurnLogReader;
  bus: LiveBus;
  log: Logger;
  budget: FeedBudget;
}

/** Between attempts to read a history that can't be read, at most. */
const MAX_RETRY_MS = 5_000;

/** So many failures, none of them of a server that is away, without a minute between two: waiting does not mend that. */
const MAX_FAULTS = 5;
const FORGOTTEN_AFTER_MS = 60_000;

/**
 * Follows one turn for all of its readers in this process: durable events by one long poll on its history, text in
 * progress by the live bus.
 */
export class TurnTail {
  readonly feed: TurnFeed;
  readonly #options: TailOptions;
  readonly #stop = new AbortController();
  readonly #unsubscribe: () => void;
  readonly #advanced = new Set<() => void>();
  readonly #endListeners = new Set<() => void>();
  readonly #begun = Promise.withResolvers<void>();
  #ended = false;
  #isOver = false;
  #failure: unknown;

  /** Listens to the bus from now on, so that nothing is missed while the turn is being started. */
  constructor(options: TailOptions) {
    this.#options = options;
    const { bus, turnId } = options;
    this.feed = new TurnFeed(options.budget);
    this.#unsubscribe = bus.subscribe(turnId, {
      frame: (frame) => {
        if (!this.feed.frame(frame)) bus.ask(turnId);
      },
      snapshot: (snapshot) => this.feed.snapshot(snapshot),
      lost: () => bus.ask(turnId),
    });
  }

  /** Settles when the feed knows where it begins, so that readers can join. */
  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  /** True once the log has come to its end. */
  get ended(): boolean {
    return this.#ended;
  }

  /** True once nothing more will come: the log has ended, or can't be read. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Why the log can't be read any more, if it can't. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Calls `listener` when nothing more will come; returns the function that takes that back. */
  onEnd(listener: () => void): () => void {
    if (this.#isOver) listener();
    else this.#endListeners.add(listener);
    return () => this.#endListeners.delete(listener);
  }

  /** Follows the log until its end, or until it turns out that it can't be read. Never rejects. */
  async run(): Promise<void> {
    const { turnId, bus, log } = this.#options;
    bus.ask(turnId);
    try {
      await this.#follow();
    } catch (error) {
      // A turn that was deleted under its readers, for one, has no end to send.
      this.#failure = error;
      log.error({ turnId, err: error }, 'a turn can not be followed any more');
    } finally {
      this.stop();
      this.#isOver = true;
      this.#begun.resolve();
      for (const listener of this.#endListeners) listener();
      this.#endListeners.clear();
    }
  }

  async #follow(): Promise<void> {
    const { turnId, logs, log } = this.#options;
    let [failures, faults, failedAt] = [0, 0, 0];
    for (let begun = false; !this.#ended;) {
      try {
        if (!begun) this.feed.beginAt(await logs.firstUnarchived(turnId));
        begun = true;
        this.#begun.resolve();
        const follow = this.#stop.signal;
        for await (const entries of logs.read(turnId, { from: this.feed.lastOrdinal + 1, follow })) {
          this.#add(entries);
        }
        this.#ended = true;
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        if (Date.now() - failedAt > FORGOTTEN_AFTER_MS) [failures, faults] = [0, 0];
        failedAt = Date.now();
        failures += 1;
        if (!isUnavailable(error)) faults += 1;
        if (error instanceof TurnNotFound || faults > MAX_FAULTS) throw error;
        log.warn({ turnId, err: error, failures }, 'a turn can not be followed for the moment');
        await sleep(backoffMs(failures, { first: 100, max: MAX_RETRY_MS, jitter: 0.5 }));
      }
    }
  }

  stop(): void {
    this.#stop.abort();
    this.#unsubscribe();
    this.#wake();
  }

  /** Waits until the log has entry `ordinal`, or has ended. False if it still has not after `timeoutMs`. */
  async reaches(ordinal: number, timeoutMs: number): Promise<boolean> {
    const deadline = Date.now() + timeoutMs;
    while (this.feed.lastOrdinal < ordinal && !this.#stop.signal.aborted) {
      const left = deadline - Date.now();
      if (left <= 0) return false;
      await this.#nextAdvance(left);
    }
    return this.feed.lastOrdinal >= ordinal;
  }

  #add(entries: LogEntry[]): void {
    for (const entry of entries) this.feed.entry(entry);
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#advanced) wake();
    this.#advanced.clear();
  }

  #nextAdvance(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(done, timeoutMs);
      const advanced = this.#advanced;
      function done(): void {
        clearTimeout(timer);
        advanced.delete(done);
        resolve();
      }
      advanced.add(done);
    });
  }
}

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
export class TurnTailPool {
  readonly #options: { logs: TurnLogReader; bus: LiveBus; log: Logger };
  readonly #budget = new FeedBudget();
  readonly #tails = new Map<string, Shared>();

  constructor(options: { logs: TurnLogReader; bus: LiveBus; log: Logger }) {
    this.#options = options;
  }

  /** Listens to a turn, which may not have begun. */
  lease(turnId: string): TailLease {
    const known = this.#tails.get(turnId);
    const shared: Shared = known ?? {
      tail: withoutRequest(() => new TurnTail({ ...this.#options, budget: this.#budget, turnId })),
      leases: 0,
      running: false,
    };
    this.#tails.set(turnId, shared);
    shared.leases += 1;
    let released = false;
    return {
      tail: shared.tail,
      run: () => {
        if (!shared.running) void withoutRequest(() => shared.tail.run());
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
