import { setTimeout as sleep } from 'node:timers/promises';
import type { PositionedTurn } from '../../features/session-stream/turn-positions.ts';
import type { ToolCall } from '../../core/records/calls.ts';
import type { LogEntry } from '../../core/records/log.ts';
import type { TurnEnd, TurnView } from '../../core/turn-view.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import type { SessionWatch } from '../../features/session-stream/session-watches.ts';
import type { ApiContext } from '../http/context.ts';
import { FollowedTurn } from './followed-turn.ts';
import { SessionWaiters } from './session-waiters.ts';
import { NO_STEPS, TurnEvents, type SessionTotals, type TurnEventsOptions } from './turn-events.ts';
import type { SessionEvent } from './wire/events.ts';

export type ViewServices = Pick<ApiContext, 'catalog' | 'logs' | 'sessionIndex' | 'tails' | 'sessionWatches'>;

type ViewedSession = Pick<TurnEventsOptions, 'sessionId' | 'isInteractive'>;

/** A turn that was read, with what is needed to read its events again. */
interface ReadTurn {
  id: string;
  /** What its events depend on beside its log. */
  options: TurnEventsOptions;
  /** The position of its first event. */
  first: number;
  /** How many events it has so far. */
  events: number;
  /** How many of each type, so that a list of one type reads only the turns of its page. */
  types: Map<string, number>;
}

/** The end of a last turn whose log no longer exists. */
const LOST: TurnEnd = { at: '', end: { status: 'error', message: 'The log of the last turn was lost.' } };

/** How much of the last turn's events is kept for clients that poll; older events are read from its log. */
const MAX_KEPT_EVENTS = 1_000;
const MAX_KEPT_CHARACTERS = 2 * 1024 * 1024;

/** The most events of one page, and their most JSON, in characters. */
const MAX_PAGE_EVENTS = 500;
const MAX_PAGE_CHARACTERS = 4 * 1024 * 1024;

/** A running turn with so many log entries is followed after a read: each further read would read them again. */
const FOLLOWED_ENTRIES = 100;

/** How long to wait for the next entry of a turn before everything is read again. */
const MAX_SILENCE_MS = 60_000;

/** The pause before a turn with a failed tail is read again. */
const RETRY_MS = 1_000;

/** The size of a view without its turns, and of each turn, in approximate characters. */
const VIEW_CHARACTERS = 2_000;
const TURN_CHARACTERS = 500;

/**
 * A session as this API shows it: the events of all its turns by their positions, and the state that they result in. It
 * reads each log once, and keeps the position of each turn; it is a cache of logs, which only grow. The order of turns
 * is the one that the catalog has stored for all processes, because clients count the events.
 */
export class SessionView {
  readonly #services: ViewServices;
  readonly #session: ViewedSession;
  readonly #waiters = new SessionWaiters(this);
  #turns: ReadTurn[] = [];
  /** The row of the last turn. */
  #row: PositionedTurn | undefined;
  /** The projection of the last turn, and the ordinal up to which it has read that turn. */
  #events: TurnEvents | undefined;
  #ordinal = 0;
  #kept: SessionEvent[] = [];
  #keptCharacters = 0;
  /** The characters of the calls that turns have left without a result, and of the answer. */
  #leftCharacters = 0;
  #answerCharacters = 0;
  #answer: { value: unknown } | undefined;
  #startedAt: string | undefined;
  #isLost = false;
  /** A turn that was read is lost: the positions of the events after it have changed. */
  #isStale = false;
  /** The next read must not rely on this process's tail of the last turn. */
  #needsLog = false;
  #begun: () => void = () => undefined;
  #reading: Promise<void> = Promise.resolve();
  #next: Promise<void> | undefined;
  readonly #followed: FollowedTurn;

  constructor(services: ViewServices, session: ViewedSession) {
    this.#services = services;
    this.#session = session;
    this.#followed = new FollowedTurn(services.tails, () => this.#waiters.size > 0);
  }

  /** How many events the session has, as of the last `refresh`. */
  get count(): number {
    const last = this.#turns.at(-1);
    return last ? last.first + last.events : 0;
  }

  /** Its approximate size in memory. */
  get characters(): number {
    const turns = this.#turns.length * TURN_CHARACTERS;
    return VIEW_CHARACTERS + turns + this.#keptCharacters + this.#leftCharacters + this.#answerCharacters;
  }

  get totals(): SessionTotals {
    return this.#events?.totals ?? NO_STEPS;
  }

  /** The last answer; undefined if the session has none. */
  get answer(): { value: unknown } | undefined {
    return this.#answer;
  }

  /** When its first turn began. */
  get startedAt(): string | undefined {
    return this.#startedAt;
  }

  /** The last turn; undefined if the session has none. */
  get turn(): TurnView | undefined {
    return this.#events?.view;
  }

  /**
   * Reads all new entries, up to now. Concurrent callers share one read, which begins after each of their calls: a read
   * that runs already may have passed the end of the log before the entry that the caller expects was written.
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

  /** As `refresh`, but always reads the log: this process's tail may be behind what another process has reported. */
  refreshFromLog(): Promise<void> {
    this.#needsLog = true;
    return this.refresh();
  }

  /** The events from `position` on, at most a page. */
  async page(position: number, limit = MAX_PAGE_EVENTS): Promise<SessionEvent[]> {
    const page: SessionEvent[] = [];
    let characters = 0;
    for await (const event of this.range(position, position + Math.min(limit, MAX_PAGE_EVENTS))) {
      page.push(event);
      characters += JSON.stringify(event).length;
      if (characters > MAX_PAGE_CHARACTERS) break;
    }
    if (!this.#isStale) return page;
    // A page that ends early, or is empty, would be the last one for a client that drains the session.
    await this.refresh();
    return this.page(position, limit);
  }

  /** How many events the session has, of one type or of all, as of the last `refresh`. */
  countOf(type: string | undefined): number {
    if (type === undefined) return this.count;
    return this.#turns.reduce((count, { types }) => count + (types.get(type) ?? 0), 0);
  }

  /** The events from `first` to before `end`, in the list of all events or in that of one type. */
  async *range(first: number, end: number, type?: string): AsyncGenerator<SessionEvent> {
    const turns = this.#turns;
    const begin = type === undefined ? this.#turnAt(first) : 0;
    let position = turns[begin]?.first ?? 0;
    for (let i = begin; position < end && !this.#isStale; i++) {
      const turn = turns[i];
      if (!turn) return;
      const count = type === undefined ? turn.events : (turn.types.get(type) ?? 0);
      // The log of a turn without events of the range is not read: it may be lost.
      if (count === 0 || position + count <= first) {
        position += count;
        continue;
      }
      const skipped = type === undefined ? Math.max(0, first - position) : 0;
      const from = turn.first + skipped;
      position += skipped;
      for await (const event of this.#keptOf(turn, from) ?? this.#reread(turn, from)) {
        if (type !== undefined && event.type !== type) continue;
        if (position >= end) return;
        if (position++ >= first) yield event;
      }
    }
  }

  /** The events of a turn from `position` on, if they are kept. */
  #keptOf(turn: ReadTurn, position: number): SessionEvent[] | undefined {
    if (turn !== this.#turns.at(-1)) return undefined;
    const firstKept = this.count - this.#kept.length;
    const from = Math.max(position, turn.first);
    return from >= firstKept ? this.#kept.slice(from - firstKept) : undefined;
  }

  /**
   * Waits until the session has more than `position` events, it is deleted, the time has passed, or the signal is
   * aborted. To be called without an await after `refresh`.
   */
  untilGrown(position: number, options: { timeoutMs: number; signal: AbortSignal }): Promise<void> {
    return this.#waiters.wait(position, options);
  }

  watch(onDeleted: () => void): SessionWatch {
    return this.#services.sessionWatches.watch(this.#session.sessionId, onDeleted);
  }

  async untilNews(watch: SessionWatch): Promise<void> {
    const position = this.#position;
    const over = new AbortController();
    try {
      await Promise.race([
        watch.untilNews(({ hasUnplaced, lastPosition }) => !hasUnplaced && (lastPosition ?? -1) <= position),
        new Promise<void>((resolve) => (this.#begun = resolve)),
        this.#untilTurnGrown(over.signal),
      ]);
    } finally {
      over.abort();
    }
  }

  /** Never resolves if the last turn has ended. */
  async #untilTurnGrown(signal: AbortSignal): Promise<void> {
    const turn = this.#turns.at(-1);
    if (!turn || this.#hasEnded) return new Promise(() => undefined);
    const tail = this.#followed.follow(turn.id);
    if (!tail.isOver) await tail.reaches(this.#ordinal + 1, MAX_SILENCE_MS, signal);
    else {
      this.#followed.stop();
      await sleep(RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /** The last turn's position among the events of the session's logs. */
  get #position(): number {
    return this.#row?.events_before ?? -1;
  }

  get #hasEnded(): boolean {
    return this.turn?.done !== undefined;
  }

  async #read(): Promise<void> {
    if (this.#isStale) this.#forget();
    await this.#readLast();
    if (await this.#isFollowed()) {
      // A turn is indexed before its predecessor has closed: its events come after those of the predecessor.
      while (!this.#row || this.#hasEnded) {
        const row = await this.#services.sessionIndex.turnFollowing(this.#session.sessionId, this.#end);
        if (!row) break;
        this.#begin(row);
        await this.#readLast();
      }
    }
    this.#waiters.grown(this.count);
  }

  /** Whether there may be turns after the last one, which has ended. */
  async #isFollowed(): Promise<boolean> {
    if (this.#row && !this.#hasEnded) return false;
    const [news] = await this.#services.catalog.turnPositions.news([this.#session.sessionId]);
    return news !== undefined && (news.hasUnplaced || (news.lastPosition ?? -1) > this.#position);
  }

  get #end(): { turn: PositionedTurn; length: number | 'lost' } | undefined {
    return this.#row && { turn: this.#row, length: this.#isLost ? 'lost' : this.#ordinal };
  }

  /** Begins again with the first turn. */
  #forget(): void {
    this.#followed.stop();
    this.#turns = [];
    this.#row = undefined;
    this.#events = undefined;
    this.#answer = undefined;
    this.#startedAt = undefined;
    this.#leftCharacters = 0;
    this.#answerCharacters = 0;
    this.#isStale = false;
    this.#restart();
  }

  #begin(row: PositionedTurn): void {
    const leftCalls = this.turn?.leftCalls ?? new Map<string, ToolCall>();
    const isFirst = this.#turns.length === 0;
    const options = { isFirst, totals: this.totals, leftCalls, ...this.#session };
    this.#followed.stop();
    this.#turns.push({ id: row.id, options, first: this.count, events: 0, types: new Map() });
    this.#leftCharacters += leftCalls.size > 0 ? JSON.stringify([...leftCalls]).length : 0;
    this.#row = row;
    this.#events = new TurnEvents(options);
    this.#restart();
    this.#begun();
  }

  /** Starts the reading of the last turn over. */
  #restart(): void {
    this.#ordinal = 0;
    this.#kept = [];
    this.#keptCharacters = 0;
    this.#isLost = false;
  }

  async #readLast(): Promise<void> {
    const turn = this.#turns.at(-1);
    if (!turn || this.#hasEnded) return;
    const { logs } = this.#services;
    const feed = this.#followed.feedOf(turn.id);
    const needsLog = this.#needsLog;
    this.#needsLog = false;
    try {
      if (feed && feed.firstOrdinal <= this.#ordinal + 1) {
        this.#add(turn, feed.entries(this.#ordinal + 1));
        // This process's tail of the turn may be behind, and the end of the turn must not be missed: another process
        // may have reported it.
        if (this.#hasEnded || (!needsLog && !(await logs.close(turn.id)))) return;
      }
      for await (const entries of logs.read(turn.id, { from: this.#ordinal + 1 })) this.#add(turn, entries);
    } catch (error) {
      if (!(error instanceof TurnNotFound)) throw error;
      this.#lose(turn);
    }
    if (this.#ordinal >= FOLLOWED_ENTRIES && !this.#hasEnded) this.#followed.follow(turn.id);
  }

  /** Counts the last turn, whose log no longer exists, as a turn without events, as other processes do. */
  #lose(turn: ReadTurn): void {
    turn.events = 0;
    turn.types.clear();
    this.#events = new TurnEvents(turn.options);
    this.#events.view.end(LOST);
    this.#restart();
    this.#isLost = true;
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
    this.#startedAt ??= this.turn?.created?.at;
    const answer = this.#events?.answer;
    if (!answer) return;
    this.#answer = answer;
    this.#answerCharacters = JSON.stringify(answer).length;
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

  async *#reread(turn: ReadTurn, from: number): AsyncGenerator<SessionEvent> {
    const events = new TurnEvents(turn.options);
    let position = turn.first;
    // Not beyond the counted events, so that a page is not newer than the state beside it.
    const end = turn.first + turn.events;
    try {
      for await (const entries of this.#services.logs.read(turn.id)) {
        for (const { record } of entries) {
          for (const event of events.feed(record)) {
            if (position === end) return;
            if (position++ >= from) yield event;
          }
        }
      }
    } catch (error) {
      if (!(error instanceof TurnNotFound)) throw error;
      this.#isStale = true;
    }
  }
}
