import { setTimeout as sleep } from 'node:timers/promises';
import type { Catalog } from '../../catalog/catalog.ts';
import type { TurnRow } from '../../catalog/schema.ts';
import type { LogEntry } from '../../core/records.ts';
import type { TurnIndex } from '../../engine/turn-index.ts';
import { TurnNotFound, type TurnLogReader } from '../../engine/turn-log-reader.ts';
import type { SessionWatches } from '../../live/session-watches.ts';
import type { TailLease, TurnTailPool } from '../../live/turn-tail.ts';
import type { LastTurn } from './session-state.ts';
import { NO_TOTALS, TurnEvents, type SessionTotals } from './turn-events.ts';
import type { SessionEvent, ToolCallRequest } from './wire/events.ts';

export interface ViewServices {
  catalog: Catalog;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  tails: TurnTailPool;
  sessionWatches: SessionWatches;
}

export interface ViewedSession {
  sessionId: string;
  /** The session takes further messages after an answer. */
  isInteractive: boolean;
}

/** A turn that was read, with what is needed to read its events again. */
interface ReadTurn {
  id: string;
  sequence: number;
  /** The position of its first event. */
  first: number;
  /** How many events it has so far. */
  events: number;
  /** How many of each type, so that a list of one type reads only the turns of its page. */
  types: Map<string, number>;
  /** Of the turns before it. */
  totals: SessionTotals;
  waiting: ReadonlyMap<string, ToolCallRequest>;
}

/** What is kept of the last turn's events for those who poll; older ones are read from its log. */
const MAX_KEPT_EVENTS = 1_000;
const MAX_KEPT_CHARACTERS = 2 * 1024 * 1024;

/** The most events of one page, and their most JSON, in characters. */
const MAX_PAGE_EVENTS = 500;
const MAX_PAGE_CHARACTERS = 4 * 1024 * 1024;

/** How long the last turn is followed after a request: a client that polls comes back within this time. */
const FOLLOW_MS = 15_000;

/** The pause before a turn is read again whose tail has failed. */
const RETRY_MS = 1_000;

const TURNS_PER_READ = 100;

/**
 * A session as this API shows it: the events of all its turns by their positions, and what they say of its state. It
 * reads each log once, and keeps the place of each turn; it is a cache of logs, which only grow.
 */
export class SessionView {
  readonly #services: ViewServices;
  readonly #session: ViewedSession;
  readonly #turns: ReadTurn[] = [];
  /** The projection of the last turn, and the ordinal up to which it has read that turn. */
  #events: TurnEvents | undefined;
  #ordinal = 0;
  #kept: SessionEvent[] = [];
  #keptCharacters = 0;
  #answer: { value: unknown } | undefined;
  #startedAt: string | undefined;
  #isLost = false;
  #reading: Promise<void> = Promise.resolve();
  #next: Promise<void> | undefined;
  #lease: { turnId: string; tail: TailLease; timer: NodeJS.Timeout } | undefined;

  constructor(services: ViewServices, session: ViewedSession) {
    this.#services = services;
    this.#session = session;
  }

  /** How many events the session has, as of the last `refresh`. */
  get count(): number {
    const last = this.#turns.at(-1);
    return last ? last.first + last.events : 0;
  }

  get totals(): SessionTotals {
    return this.#events?.totals ?? NO_TOTALS;
  }

  /** The last answer; undefined if the session has none. */
  get answer(): { value: unknown } | undefined {
    return this.#answer;
  }

  /** When its first turn began. */
  get startedAt(): string | undefined {
    return this.#startedAt;
  }

  get last(): LastTurn | undefined {
    const events = this.#events;
    if (!events) return undefined;
    const { startedAt, end, done, waiting, pauses } = events;
    if (this.#isLost) {
      const lost = { status: 'error' as const, message: 'The log of the last turn was lost.' };
      return { startedAt, end: lost, endedAt: startedAt, waiting: new Map(), pauses: new Set() };
    }
    return { startedAt, end, endedAt: done?.at, limit: done?.limit, waiting, pauses };
  }

  /**
   * Reads what is new, up to now. Concurrent callers share a reading that begins after each of them has called: one that
   * runs already may have looked before what the caller knows has happened.
   */
  refresh(): Promise<void> {
    const next =
      this.#next ??
      this.#reading
        .catch(() => undefined)
        .then(() => {
          this.#next = undefined;
          this.#reading = this.#read();
          return this.#reading;
        });
    this.#next = next;
    return next;
  }

  /** The events from `position` on, at most a page. */
  async page(position: number, limit = MAX_PAGE_EVENTS): Promise<SessionEvent[]> {
    const page: SessionEvent[] = [];
    let characters = 0;
    const isFull = () => page.length >= Math.min(limit, MAX_PAGE_EVENTS) || characters > MAX_PAGE_CHARACTERS;
    const firstKept = this.count - this.#kept.length;
    for (let i = this.#turnAt(position); i < this.#turns.length && !isFull(); i++) {
      const turn = this.#turns[i];
      if (!turn) break;
      const isKept = i === this.#turns.length - 1 && Math.max(position, turn.first) >= firstKept;
      const events = isKept ? this.#kept.slice(Math.max(position - firstKept, 0)) : this.#reread(turn, i, position);
      for await (const event of events) {
        page.push(event);
        characters += JSON.stringify(event).length;
        if (isFull()) break;
      }
    }
    return page;
  }

  /** How many events the session has, of one type or of all, as of the last `refresh`. */
  countOf(type: string | undefined): number {
    if (type === undefined) return this.count;
    return this.#turns.reduce((count, { types }) => count + (types.get(type) ?? 0), 0);
  }

  /** The events from `first` to before `end`, at most a page, in the list of all events or in that of one type. */
  async range(first: number, end: number, type: string | undefined): Promise<SessionEvent[]> {
    if (type === undefined) return this.page(first, end - first);
    const found: SessionEvent[] = [];
    let [position, characters] = [0, 0];
    for (const [i, turn] of this.#turns.entries()) {
      const count = turn.types.get(type) ?? 0;
      if (position + count <= first) position += count;
      else {
        for await (const event of this.#reread(turn, i, turn.first)) {
          if (event.type !== type || position++ < first) continue;
          if (position > end || found.length >= MAX_PAGE_EVENTS || characters > MAX_PAGE_CHARACTERS) return found;
          found.push(event);
          characters += JSON.stringify(event).length;
        }
      }
    }
    return found;
  }

  /** Waits until the session has more than `position` events, it is deleted, or the time is over. */
  async untilGrown(position: number, { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal }): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    const stop = new AbortController();
    const ended = AbortSignal.any([signal, stop.signal, AbortSignal.timeout(timeoutMs)]);
    const over = new Promise<void>((resolve) => ended.addEventListener('abort', () => resolve()));
    using watch = this.#services.sessionWatches.watch(this.#session.sessionId, () => stop.abort());
    while (!ended.aborted) {
      await this.refresh();
      if (this.count > position) return;
      const { sequence = 0 } = this.#turns.at(-1) ?? {};
      const news = watch.untilNews(({ lastSequence }) => (lastSequence ?? 0) <= sequence);
      await Promise.race([over, news, this.#untilTurnGrown(deadline - Date.now())]);
    }
  }

  /** Never resolves if the last turn has ended. */
  async #untilTurnGrown(timeoutMs: number): Promise<void> {
    const turn = this.#turns.at(-1);
    if (!turn || this.#hasEnded) return new Promise(() => undefined);
    const { tail } = this.#follow(turn.id);
    if (!tail.isOver) await tail.reaches(this.#ordinal + 1, timeoutMs);
    else {
      this.#unfollow();
      await sleep(RETRY_MS);
    }
  }

  get #hasEnded(): boolean {
    return this.#isLost || this.#events?.end !== undefined;
  }

  async #read(): Promise<void> {
    const { sessionId } = this.#session;
    await this.#readLast();
    await this.#services.turnIndex.reconcileRequests(sessionId);
    for (let rows = await this.#unread(); rows.length > 0; rows = await this.#unread()) {
      for (const row of rows) {
        // The turn before it has ended: a session runs one at a time.
        if (!this.#hasEnded) await this.#readLast();
        this.#begin(row);
        await this.#readLast();
      }
    }
  }

  async #unread(): Promise<TurnRow[]> {
    const last = this.#turns.at(-1);
    return this.#services.catalog.turns.after(this.#session.sessionId, last?.sequence ?? 0, TURNS_PER_READ);
  }

  #begin({ id, sequence }: TurnRow): void {
    const { isInteractive, sessionId } = this.#session;
    const totals = this.totals;
    const waiting = this.#events?.waiting ?? new Map<string, ToolCallRequest>();
    this.#unfollow();
    const isFirst = this.#turns.length === 0;
    this.#turns.push({ id, sequence: sequence ?? 0, first: this.count, events: 0, types: new Map(), totals, waiting });
    this.#events = new TurnEvents({ totals, isFirst, isInteractive, waiting, sessionId });
    this.#ordinal = 0;
    this.#kept = [];
    this.#keptCharacters = 0;
    this.#isLost = false;
  }

  async #readLast(): Promise<void> {
    const turn = this.#turns.at(-1);
    if (!turn || this.#hasEnded) return;
    const { logs } = this.#services;
    const feed = this.#lease?.turnId === turn.id ? this.#lease.tail.tail.feed : undefined;
    if (feed && feed.firstOrdinal <= this.#ordinal + 1) {
      this.#add(turn, feed.entries(this.#ordinal + 1));
      // What follows the turn in this process may be behind. That its end is not missed is all that matters: another
      // process may have reported it.
      if (this.#hasEnded || !(await logs.close(turn.id))) return;
    }
    try {
      for await (const entries of logs.read(turn.id, { from: this.#ordinal + 1 })) this.#add(turn, entries);
    } catch (error) {
      if (!(error instanceof TurnNotFound)) throw error;
      this.#isLost = true;
    }
  }

  #add(turn: ReadTurn, entries: readonly LogEntry[]): void {
    for (const { ordinal, record } of entries) {
      if (ordinal <= this.#ordinal) continue;
      this.#ordinal = ordinal;
      const events = this.#events?.feed(record) ?? [];
      turn.events += events.length;
      for (const { type } of events) turn.types.set(type, (turn.types.get(type) ?? 0) + 1);
      this.#keep(events);
    }
    this.#startedAt ??= this.#events?.startedAt;
    this.#answer = this.#events?.answer ?? this.#answer;
  }

  #keep(events: SessionEvent[]): void {
    this.#kept.push(...events);
    for (const event of events) this.#keptCharacters += JSON.stringify(event).length;
    if (this.#kept.length <= MAX_KEPT_EVENTS && this.#keptCharacters <= MAX_KEPT_CHARACTERS) return;
    this.#kept = [];
    this.#keptCharacters = 0;
  }

  /** The index of the turn that has the event at `position`. */
  #turnAt(position: number): number {
    let [low, high] = [0, this.#turns.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const turn = this.#turns[middle];
      if (turn && turn.first + turn.events <= position) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  async *#reread(turn: ReadTurn, index: number, from: number): AsyncGenerator<SessionEvent> {
    const { totals, waiting } = turn;
    const { sessionId, isInteractive } = this.#session;
    const events = new TurnEvents({ totals, waiting, isFirst: index === 0, sessionId, isInteractive });
    let position = turn.first;
    // Not beyond what was counted, so that a page does not tell more than the state beside it.
    const end = turn.first + turn.events;
    for await (const entries of this.#services.logs.read(turn.id)) {
      for (const { record } of entries) {
        for (const event of events.feed(record)) {
          if (position === end) return;
          if (position++ >= from) yield event;
        }
      }
    }
  }

  #follow(turnId: string): TailLease {
    if (this.#lease && this.#lease.turnId !== turnId) this.#unfollow();
    if (!this.#lease) {
      const tail = this.#services.tails.lease(turnId);
      tail.run();
      this.#lease = { turnId, tail, timer: setTimeout(() => this.#unfollow(), FOLLOW_MS).unref() };
    }
    this.#lease.timer.refresh();
    return this.#lease.tail;
  }

  #unfollow(): void {
    clearTimeout(this.#lease?.timer);
    this.#lease?.tail.release();
    this.#lease = undefined;
  }
}
