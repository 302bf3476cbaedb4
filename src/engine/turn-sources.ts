import type { Archive } from '../catalog/archive.ts';
import type { TurnRow } from '../catalog/schema.ts';
import type { TurnStart, WorkflowClose } from '../core/history.ts';
import type { LogEntry, UnsequencedRecord } from '../core/records/log.ts';
import type { Waiting } from '../core/records/pending.ts';
import type { SeenTurn } from '../core/session.ts';
import type { TurnState } from '../core/session-state.ts';
import { Turn } from '../core/turn.ts';
import type { FollowOptions, HistoryPage, TurnHistory } from '../temporal/history.ts';
import { recordCharacters, recordsOf, type EndedTurn, type TurnOfSession } from './ended-turn.ts';

/** Entries of a log in which large texts are references into the blobs of a session. */
export interface StoredBatch {
  sessionId: string;
  entries: LogEntry[];
  /** The state of the turn after these entries, if they are from its history. */
  state?: TurnState;
}

export interface TurnStatus extends SeenTurn {
  sessionId: string;
}

export interface BackwardsOptions {
  /** The last ordinal to read; one beyond the end means the end. */
  from: number;
  /** The most entries of a batch. */
  batch: number;
}

/** The first entry of a log and the last one that it has, which is the end of the turn if it has ended. */
interface Ends {
  sessionId: string;
  first: LogEntry | undefined;
  last: LogEntry | undefined;
}

/** Where the log of a turn is: in memory or in the archive if it has ended, else at least in part in Temporal. */
export type TurnSource = EndedLog | LiveLog;

/** Entries per read: at most 12 MiB, since a record has at most 128 KiB. */
export const ARCHIVE_PAGE = 100;

/** A longer log is not cached while its turn runs, because each reader of a running turn keeps what it has read. */
const MAX_GROWING_CHARACTERS = 1024 * 1024;

/** The first entries of a log: those in the archive, or all of an ended turn that this process has in memory. */
interface Segment {
  sessionId: string;
  length: number;
  /** Up to `limit` entries from ordinal `from` on. */
  read: (from: number, limit: number) => Promise<LogEntry[]>;
}

const NOTHING: Segment = { sessionId: '', length: 0, read: () => Promise.resolve([]) };

function archivedSegment(archive: Archive, { id, session_id: sessionId, archived_through }: TurnRow): Segment {
  return { sessionId, length: archived_through, read: (from, limit) => archive.read(id, from, limit) };
}

export function archivedTurn(row: TurnRow): TurnOfSession {
  const { id: turnId, session_id: sessionId, previous_turn_id: previousTurnId, queue_number: number } = row;
  // Only a turn that has ended in the queue has no sequence.
  const isQueued = row.sequence === null && number !== null;
  const turn = { turnId, sessionId, previousTurnId, sequence: row.sequence ?? 0 };
  return { ...turn, ...(isQueued && { queued: { number } }) };
}

/** The log of a turn that has ended, and that can be read without Temporal. */
export class EndedLog {
  readonly isLive = false;
  /** The first ordinal that the archive may lack. */
  readonly firstUnarchived: number;
  readonly #turn: TurnOfSession;
  readonly #segment: Segment;

  constructor(turn: TurnOfSession, segment: Segment, firstUnarchived: number) {
    this.firstUnarchived = firstUnarchived;
    this.#turn = turn;
    this.#segment = segment;
  }

  /** A turn that is in the archive. */
  static archived(row: TurnRow, archive: Archive): EndedLog {
    return new EndedLog(archivedTurn(row), archivedSegment(archive, row), row.archived_through + 1);
  }

  /** A turn that this process has in memory. */
  static cached({ entries, ...turn }: EndedTurn): EndedLog {
    const read = (from: number, limit: number) => Promise.resolve(entries.slice(from - 1, from - 1 + limit));
    return new EndedLog(turnOf(turn), { sessionId: turn.sessionId, length: entries.length, read }, 1);
  }

  entries(from: number): AsyncGenerator<StoredBatch> {
    return entriesOf(this.#segment, from);
  }

  async whole(): Promise<EndedTurn> {
    return { ...this.#turn, entries: await allOf(this.entries(1)) };
  }

  backwards(options: BackwardsOptions): AsyncGenerator<StoredBatch> {
    return backwardsIn(this.#segment, options);
  }

  async *newest(): AsyncGenerator<UnsequencedRecord[]> {
    const options = { from: Infinity, batch: ARCHIVE_PAGE };
    for await (const { entries } of this.backwards(options)) yield recordsOf(entries);
  }

  length(): Promise<number> {
    return Promise.resolve(this.#segment.length);
  }

  async ends(): Promise<Ends> {
    const { sessionId, length, read } = this.#segment;
    const [[last], [first]] = [await read(length, 1), await read(1, 1)];
    return { sessionId, first, last };
  }

  async status(): Promise<TurnStatus> {
    const [last] = await this.#segment.read(this.#segment.length, 1);
    return { ...this.#turn, open: false, ...waitingAt(last) };
  }
}

interface LiveLogOptions {
  turnId: string;
  /** Undefined if the index does not have the turn, or while the catalog is unavailable. */
  row: TurnRow | undefined;
  archive: Archive;
  history: TurnHistory;
  /** Reads from the history of the turn, which may be about to start. @throws TurnNotFound */
  found: <T>(read: () => Promise<T>) => Promise<T>;
  /** Called with the turn if its log was read up to its end. */
  onEnded: (turn: EndedTurn) => void;
}

/** The log of a turn that runs, or has ended and is not in the archive yet: the archive may have its first runs. */
export class LiveLog {
  readonly isLive = true;
  readonly row: TurnRow | undefined;
  readonly #options: LiveLogOptions;
  readonly #archived: Segment;

  constructor(options: LiveLogOptions) {
    const { row, archive } = options;
    this.row = row;
    this.#options = options;
    this.#archived = row ? archivedSegment(archive, row) : NOTHING;
  }

  /** The first ordinal that the archive may lack. */
  get firstUnarchived(): number {
    return this.#archived.length + 1;
  }

  /** The input of the turn's workflow. @throws TurnNotFound */
  start(): Promise<TurnStart> {
    const { turnId, history, found } = this.#options;
    return found(() => history.start(turnId));
  }

  /** How the turn's workflow closed; undefined while it runs. @throws TurnNotFound */
  close(): Promise<WorkflowClose | undefined> {
    const { turnId, history, found } = this.#options;
    return found(() => history.close(turnId));
  }

  async *entries(from: number, following: FollowOptions = {}): AsyncGenerator<StoredBatch> {
    const turn = new Turn();
    let whole: LogEntry[] | undefined = [];
    let characters = 0;
    for await (const batch of this.#read(from, following, turn)) {
      yield { ...batch, entries: batch.entries.filter(({ ordinal }) => ordinal >= from) };
      if (!whole || batch.entries[0]?.ordinal !== whole.length + 1) continue;
      whole.push(...batch.entries);
      characters += recordCharacters(recordsOf(batch.entries));
      if (characters > MAX_GROWING_CHARACTERS) whole = undefined;
      else if (whole.at(-1)?.record.kind === 'turn.done' && turn.start)
        this.#options.onEnded({ ...turnOf(turn.start), entries: whole });
    }
  }

  /** The turn with all of its entries, once it has ended. */
  async whole(follow: AbortSignal): Promise<EndedTurn> {
    const turn = new Turn();
    const entries = await allOf(this.#read(1, { follow }, turn));
    if (!turn.start) throw new Error(`the history of turn ${this.#options.turnId} is empty`);
    return { ...turnOf(turn.start), entries };
  }

  /** The entries from `from` on, and possibly earlier ones: those that had to be read as well. */
  async *#read(from: number, following: FollowOptions, turn: Turn): AsyncGenerator<StoredBatch> {
    const { turnId, history } = this.#options;
    // The page tokens pin the read to the current run, so that it does not continue in a later one.
    const current = this.#pages(() => history.read(turnId, following));
    const { value: firstPage } = await current.next();
    const start = startOf(turnId, firstPage || undefined);
    const { sessionId } = start;
    const earlier = await this.#earlierRuns(start, Math.max(from, this.firstUnarchived));
    const before = (earlier[0]?.start ?? start).carry?.ordinal ?? 0;
    yield* entriesOf(this.#archived, from, before);

    const run: { continuedAs?: string | undefined } = {};
    const project = ({ events }: HistoryPage): StoredBatch => {
      const entries: LogEntry[] = [];
      for (const event of events) {
        entries.push(...turn.feed(event));
        run.continuedAs = event.type === 'continued' ? event.runId : undefined;
      }
      return { sessionId, entries, state: turn.state };
    };
    for (const { runId } of earlier) for await (const page of history.read(turnId, { runId })) yield project(page);
    if (firstPage) yield project(firstPage);
    for await (const page of current) yield project(page);
    while (run.continuedAs) {
      for await (const page of history.read(turnId, { ...following, runId: run.continuedAs })) yield project(page);
    }
  }

  /** The pages of the history, from the first one on. */
  async *#pages<T>(read: () => AsyncGenerator<T, void>): AsyncGenerator<T, void> {
    const { pages, first } = await this.#options.found(async () => {
      const begun = read();
      return { pages: begun, first: await begun.next() };
    });
    if (first.done) return;
    yield first.value;
    yield* pages;
  }

  /** The runs before the one with input `start`, oldest first, from the run that has entry `from`. */
  async #earlierRuns(start: TurnStart, from: number): Promise<{ runId: string; start: TurnStart }[]> {
    const { turnId, history, found } = this.#options;
    const runs: { runId: string; start: TurnStart }[] = [];
    for (let { carry } = start; carry && carry.ordinal >= from; carry = runs[0]?.start.carry) {
      const runId = carry.previousRunId;
      // Throws for a run that was deleted before it was archived: a log with a gap cannot be read.
      runs.unshift({ runId, start: await found(() => history.start(turnId, runId)) });
    }
    return runs;
  }

  /** The part that is not archived is read at once, because the entries of a history are numbered from its start. */
  async *backwards({ from, batch: size }: BackwardsOptions): AsyncGenerator<StoredBatch> {
    if (from >= this.firstUnarchived) {
      const live: LogEntry[] = [];
      let sessionId = '';
      for await (const batch of this.entries(this.firstUnarchived)) {
        ({ sessionId } = batch);
        live.push(...batch.entries.filter(({ ordinal }) => ordinal <= from));
      }
      while (live.length > 0) yield { sessionId, entries: live.splice(-size).reverse() };
    }
    yield* backwardsIn(this.#archived, { from, batch: size });
  }

  /** Read from the end of the history, which does not number its records. */
  async *newest(): AsyncGenerator<UnsequencedRecord[]> {
    const { turnId, history } = this.#options;
    for await (const events of this.#pages(() => history.readBackwards(turnId))) {
      yield events.flatMap((event) =>
        event.type === 'ended' && event.end.how === 'completed' ? event.end.records : [],
      );
    }
    // If an operator has reset the turn, the message of its pending calls is in the run that was reset.
    for await (const { entries } of this.entries(1)) yield recordsOf(entries);
  }

  async length(): Promise<number | undefined> {
    if (!(await this.close())) return undefined;
    for await (const { entries } of this.backwards({ from: Infinity, batch: 1 })) return entries[0]?.ordinal;
    return undefined;
  }

  async ends(): Promise<Ends> {
    let { sessionId } = this.#archived;
    let [first] = this.#archived.length > 0 ? await this.#archived.read(1, 1) : [];
    let last: LogEntry | undefined;
    for await (const batch of this.entries(this.firstUnarchived)) {
      ({ sessionId } = batch);
      first ??= batch.entries[0];
      last = batch.entries.at(-1) ?? last;
    }
    return { sessionId, first, last };
  }

  async status(): Promise<TurnStatus> {
    const turn = turnOf(await this.start());
    const close = await this.close();
    const result = close?.how === 'completed' ? close.result : undefined;
    const { pending, threads }: Waiting = result?.status === 'done' ? result : { pending: [] };
    return { ...turn, open: close === undefined, pending, ...(threads && { threads }) };
  }
}

async function* entriesOf(
  { sessionId, length, read }: Segment,
  from: number,
  to = length,
): AsyncGenerator<StoredBatch> {
  for (let next = from; next <= to;) {
    const entries = await read(next, Math.min(ARCHIVE_PAGE, to - next + 1));
    const last = entries.at(-1);
    if (!last) return;
    yield { sessionId, entries };
    next = last.ordinal + 1;
  }
}

async function* backwardsIn(
  { sessionId, length, read }: Segment,
  { from, batch: size }: BackwardsOptions,
): AsyncGenerator<StoredBatch> {
  for (let last = Math.min(from, length); last > 0; last -= size) {
    const first = Math.max(1, last - size + 1);
    yield { sessionId, entries: (await read(first, last - first + 1)).toReversed() };
  }
}

async function allOf(batches: AsyncIterable<StoredBatch>): Promise<LogEntry[]> {
  return (await Array.fromAsync(batches, ({ entries }) => entries)).flat();
}

function turnOf({ turnId, sessionId, previousTurnId, sequence, queued }: TurnOfSession): TurnOfSession {
  return { turnId, sessionId, previousTurnId, sequence, ...(queued && { queued }) };
}

function waitingAt(last: LogEntry | undefined): Waiting {
  if (last?.record.kind !== 'turn.done' || last.record.end.status !== 'done') return { pending: [] };
  const { requiredActions, held = [], threads } = last.record.end;
  return { pending: [...requiredActions.flatMap(({ calls }) => calls), ...held], ...(threads && { threads }) };
}

function startOf(turnId: string, page: HistoryPage | undefined): TurnStart {
  const [first] = page?.events ?? [];
  if (first?.type !== 'started') throw new Error(`the history of turn ${turnId} does not begin with its start`);
  return first.start;
}
