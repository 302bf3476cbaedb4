import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { LogEntry } from '../core/records/log.ts';
import type { TurnCreated } from '../core/records/turn.ts';
import { TurnNotFound, type TurnLogReader } from '../engine/turn-log-reader.ts';
import { isUnavailable } from '../engine/unavailable.ts';
import type { LiveBus } from './bus.ts';
import { FeedBudget } from './feed-budget.ts';
import { ReadPace } from './read-pace.ts';
import { TurnFeed } from './turn-feed.ts';
import { NEVER_ABORTED, onAbort } from '../lib/abort.ts';
import { backoffMs } from '../lib/backoff.ts';
import { withoutRequest } from '../telemetry/log-context.ts';

interface TailOptions {
  turnId: string;
  logs: TurnLogReader;
  bus: LiveBus;
  log: Logger;
  budget: FeedBudget;
}

/** The longest wait between attempts to read the history. */
const MAX_RETRY_MS = 5_000;

/** Gives up after this many failures other than outages, each within a minute of the last. */
const MAX_FAULTS = 5;
const FAILURE_WINDOW_MS = 60_000;

/**
 * Follows one turn for all of its readers in this process: durable events by one long poll on its history, text in
 * progress from the live bus.
 */
export class TurnTail {
  readonly feed: TurnFeed;
  readonly #options: TailOptions;
  readonly #stop = new AbortController();
  readonly #pace = new ReadPace(this.#stop.signal);
  readonly #unsubscribe: (() => void)[];
  readonly #advanced = new Set<() => void>();
  readonly #endListeners = new Set<() => void>();
  readonly #ready = Promise.withResolvers<void>();
  /** Whether the feed has its first ordinal. */
  #isStarted = false;
  #ended = false;
  #isOver = false;
  #failure: unknown;

  /** Subscribes to the bus at once, so that no frame is missed while the turn is being started. */
  constructor(options: TailOptions) {
    this.#options = options;
    const { bus, turnId } = options;
    this.feed = new TurnFeed(options.budget);
    const unsubscribe = bus.subscribe(turnId, {
      frame: (frame) => {
        // The message follows entries that have not been read.
        if (this.#isStarted && frame.after > this.feed.lastOrdinal) this.#pace.hint();
        if (!this.feed.frame(frame)) bus.requestSnapshots(turnId);
      },
      retrying: (notice) => this.feed.retrying(notice),
      snapshot: (snapshot) => this.feed.snapshot(snapshot),
      output: (output) => {
        if (this.#isStarted && output.after > this.feed.lastOrdinal) this.#pace.hint();
        if (!this.feed.output(output)) bus.requestSnapshots(turnId);
      },
      lost: () => bus.requestSnapshots(turnId),
    });
    this.#unsubscribe = [unsubscribe, bus.onHint(`growth:${turnId}`, () => this.#pace.hint())];
  }

  /** Settles when the feed has its first ordinal, so that readers can join, or the tail has failed. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** True once the end of the log has been read. */
  get ended(): boolean {
    return this.#ended;
  }

  /** True once nothing more follows: the log has ended, or following it has failed. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** The error with which following the log has failed, if it has. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Calls `listener` once nothing more follows; returns the unsubscribe function. */
  onEnd(listener: () => void): () => void {
    if (this.#isOver) listener();
    else this.#endListeners.add(listener);
    return () => this.#endListeners.delete(listener);
  }

  /**
   * Follows the log until its end, or until reading it fails for good. Never rejects.
   * @param created the turn's first record, if this process has just started the turn: it is not read then
   */
  async run(created?: TurnCreated): Promise<void> {
    const { turnId, bus, log } = this.#options;
    bus.requestSnapshots(turnId);
    try {
      if (created) this.#begin(created);
      await this.#follow();
    } catch (error) {
      // For example the turn was deleted while it had readers: there is no end to send.
      this.#failure = error;
      log.error({ turnId, err: error }, 'following a turn failed');
    } finally {
      this.stop();
      this.#isOver = true;
      this.#ready.resolve();
      for (const listener of this.#endListeners) listener();
      this.#endListeners.clear();
    }
  }

  #begin(created: TurnCreated): void {
    this.#add([{ ordinal: 1, record: created }]);
    this.#isStarted = true;
    this.#ready.resolve();
  }

  async #follow(): Promise<void> {
    const { turnId, logs, log } = this.#options;
    let [failures, faults, failedAt] = [0, 0, 0];
    while (!this.#ended) {
      try {
        if (this.#isStarted) await this.#pace.next();
        else this.feed.startAt(await logs.firstUnarchived(turnId));
        this.#isStarted = true;
        this.#ready.resolve();
        const options = { follow: this.#stop.signal, pace: this.#pace };
        for await (const entries of logs.read(turnId, { from: this.feed.lastOrdinal + 1, ...options })) {
          this.#add(entries);
        }
        this.#ended = true;
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        if (Date.now() - failedAt > FAILURE_WINDOW_MS) [failures, faults] = [0, 0];
        failedAt = Date.now();
        failures += 1;
        if (!isUnavailable(error)) faults += 1;
        if (error instanceof TurnNotFound || faults > MAX_FAULTS) throw error;
        log.warn({ turnId, err: error, failures }, 'cannot follow a turn; retrying');
        await sleep(backoffMs(failures, { first: 100, max: MAX_RETRY_MS, jitter: 0.5 }));
      }
    }
  }

  stop(): void {
    this.#stop.abort();
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#wake();
  }

  /**
   * Waits until the log has entry `ordinal`, or has ended. False if it has no such entry then, after `timeoutMs`, or when
   * `signal` is aborted.
   */
  async reaches(ordinal: number, timeoutMs: number, signal = NEVER_ABORTED): Promise<boolean> {
    const deadline = Date.now() + timeoutMs;
    while (this.feed.lastOrdinal < ordinal && !this.#stop.signal.aborted) {
      const left = deadline - Date.now();
      if (left <= 0 || signal.aborted) return false;
      await this.#nextAdvance(left, signal);
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

  #nextAdvance(timeoutMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(done, timeoutMs);
      const stopListening = onAbort(signal, done);
      const advanced = this.#advanced;
      function done(): void {
        clearTimeout(timer);
        stopListening();
        advanced.delete(done);
        resolve();
      }
      advanced.add(done);
    });
  }
}

/** Keeps a turn's tail alive for a reader. */
export interface TailLease {
  tail: TurnTail;
  /** Starts following the log, unless another lease has done so; `created` is that of `TurnTail.run`. */
  run(created?: TurnCreated): void;
  release(): void;
}

interface Shared {
  tail: TurnTail;
  leases: number;
  running: boolean;
}

/** The tails of this process: one for each turn that has readers. */
export class TurnTailPool {
  readonly #options: { logs: TurnLogReader; bus: LiveBus; log: Logger };
  readonly #budget = new FeedBudget();
  readonly #tails = new Map<string, Shared>();

  constructor(options: { logs: TurnLogReader; bus: LiveBus; log: Logger }) {
    this.#options = options;
  }

  /** Subscribes to a turn, which may not have started yet. */
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
      run: (created) => {
        if (!shared.running) void withoutRequest(() => shared.tail.run(created));
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
