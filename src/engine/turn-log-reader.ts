import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { isCatalogUnavailable } from '../catalog/database.ts';
import type { TurnRow } from '../catalog/schema.ts';
import type { TurnStart, WorkflowClose } from '../core/history.ts';
import { eventId } from '../core/ids.ts';
import { turnCreated, Turn } from '../core/turn.ts';
import type { TurnState } from '../core/session-state.ts';
import type {
  InputItem,
  LogEntry,
  ModelMessage,
  PauseReason,
  TurnCreated,
  TurnDone,
  UnsequencedRecord,
} from '../core/records.ts';
import { EncryptionKeyMissing } from '../encryption/cipher.ts';
import type { OnceLog } from '../lib/once-log.ts';
import { isNotFound } from '../temporal/errors.ts';
import type { FollowOptions, HistoryPage, TurnHistory } from '../temporal/history.ts';
import { EngineError } from './errors.ts';
import { RunningTurns } from './running-turns.ts';
import { restoreEntries, restoreRecord } from './restore-records.ts';
import { isUnavailable } from './unavailable.ts';

/** Neither the archive nor Temporal has the turn. */
export class TurnNotFound extends EngineError {
  static {
    this.prototype.name = 'TurnNotFound';
  }

  constructor(turnId: string, options?: ErrorOptions) {
    super('turn_not_found', `there is no turn ${turnId}`, options);
  }
}

/** The session has accepted the turn, and Temporal has not started its workflow yet. */
class TurnNotStarted extends EngineError {
  static {
    this.prototype.name = 'TurnNotStarted';
  }

  constructor(turnId: string, options?: ErrorOptions) {
    super('unavailable', `turn ${turnId} was accepted and has not started yet: try again`, options);
  }
}

/** What is read of a turn; undefined if an operator has deleted the turn before it was archived. */
export async function unlessNotFound<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof TurnNotFound) return undefined;
    throw error;
  }
}

interface OneOfSeveral {
  turnId: string;
  log: Logger;
}

/**
 * What is read of one of several turns; undefined if it no longer exists, or cannot be read, which is logged: one turn does
 * not take a list with it.
 * @throws outages, after which all of them can be read, and EncryptionKeyMissing: with its key the turn can be read
 */
export async function unlessUnreadable<T>(reading: Promise<T>, turn: OneOfSeveral): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    leaveOut(turn, error);
    return undefined;
  }
}

/** As `unlessUnreadable`: yields what can be read of one of several turns. */
export async function* ignoreUnreadable<T>(reading: AsyncIterable<T>, turn: OneOfSeveral): AsyncGenerator<T> {
  try {
    yield* reading;
  } catch (error) {
    leaveOut(turn, error);
  }
}

function leaveOut({ turnId, log }: OneOfSeveral, error: unknown): void {
  if (isUnavailable(error) || error instanceof EncryptionKeyMissing) throw error;
  if (!(error instanceof TurnNotFound)) log.error({ turnId, err: error }, 'a turn that cannot be read is left out');
}

interface ReadOptions extends FollowOptions {
  /** The first ordinal to read. */
  from?: number;
}

/** Entries of a log in which large texts are references into the blobs of a session. */
export interface StoredBatch {
  sessionId: string;
  entries: LogEntry[];
  /** That of the turn after them; undefined for what is in the archive. */
  state?: TurnState;
}

/** The position of a model's message. */
export interface MessagePlace {
  sessionId: string;
  turnId: string;
  messageId: string;
}

/** A turn of a chain with its whole log; without entries if an operator has deleted the turn before it was archived. */
export interface ChainedTurn {
  turnId: string;
  previousTurnId: string | null;
  entries: LogEntry[];
}

/** The first record of a turn, and its last one if the turn has ended. */
export interface TurnEnds {
  created: TurnCreated;
  done: TurnDone | undefined;
  /** The ids of the calls that wait for answers while the turn runs. */
  waiting?: string[];
  /** Why it is paused. */
  paused?: PauseReason[];
  /** The turn's position in the queue of its session, from 1, if it waits there. */
  position?: number;
}

const MAX_CACHED_CHARACTERS = 32 * 1024 * 1024;

interface BackwardsOptions {
  from: number;
  batch: number;
}

/** A longer log is not cached while its turn runs, because each reader of a running turn holds what it has read. */
const MAX_GROWING_CHARACTERS = 1024 * 1024;

/** Entries that are restored together: a stored entry has at most 128 KiB, a restored one may have megabytes. */
const RESTORE_BATCH_SIZE = 20;

/** Rows of the archive per read: at most 12 MiB, since a record has at most 128 KiB. */
const ARCHIVE_PAGE = 100;

/** Temporal starts the workflow of an accepted turn within milliseconds. If it is overloaded, readers wait this long. */
const STARTS_WITHIN_MS = 5_000;
const FIRST_START_POLL_MS = 10;
const MAX_START_POLL_MS = 250;
const MAX_ACCEPTED = 10_000;

/** Turns of a chain per read of the index. */
const CHAIN_PAGE = 1_000;

interface TurnLogReaderOptions {
  catalog: Catalog;
  history: TurnHistory;
  blobs: BlobStore;
  losses: OnceLog;
}

/**
 * Reads the logs of turns. Ended turns, and the ended runs of long ones, are in the archive; the rest is in Temporal's
 * histories. Entries are returned with all of their texts.
 */
export class TurnLogReader {
  readonly #catalog: Catalog;
  readonly #history: TurnHistory;
  readonly #running: RunningTurns;
  readonly #blobs: BlobStore;
  readonly #losses: OnceLog;
  /**
   * Logs of ended turns that this process has read to their end. They no longer change, and are often read again at once:
   * by the next turn, and by the archive.
   */
  readonly #ended = new LRUCache<string, StoredBatch>({
    maxSize: MAX_CACHED_CHARACTERS,
    sizeCalculation: ({ entries }) => JSON.stringify(entries).length,
  });

  /** Turns that this process has seen accepted a moment ago. About others, Temporal is asked. */
  readonly #accepted = new LRUCache<string, true>({ max: MAX_ACCEPTED, ttl: STARTS_WITHIN_MS });

  constructor({ catalog, history, blobs, losses }: TurnLogReaderOptions) {
    this.#losses = losses;
    this.#catalog = catalog;
    this.#history = history;
    this.#running = new RunningTurns(history);
    this.#blobs = blobs;
  }

  /** The session has accepted a turn, whose workflow Temporal is about to start. */
  accepted(turnId: string): void {
    this.#accepted.set(turnId, true);
  }

  /** The entries of a turn in order, in batches. @throws TurnNotFound */
  async *read(turnId: string, options: ReadOptions = {}): AsyncGenerator<LogEntry[]> {
    for await (const { sessionId, entries } of this.readStored(turnId, options)) {
      for (let from = 0; from < entries.length; from += RESTORE_BATCH_SIZE) {
        yield await this.#restore(entries.slice(from, from + RESTORE_BATCH_SIZE), { sessionId, turnId });
      }
    }
  }

  /** All entries of a turn. @throws TurnNotFound */
  async all(turnId: string, options: ReadOptions = {}): Promise<LogEntry[]> {
    const entries: LogEntry[] = [];
    for await (const batch of this.read(turnId, options)) entries.push(...batch);
    return entries;
  }

  /**
   * The turns of a chain, newest first. The first turn is read alone: often it has just ended, and the caller has the
   * others and stops. The others are read from the archive in batches. `follow` is that of `ReadOptions`.
   */
  async *chain(turnId: string, follow: AbortSignal): AsyncGenerator<ChainedTurn> {
    for (let next: string | null = turnId; next !== null;) {
      const turn = await this.#chained(next, follow);
      yield turn;
      if (turn.previousTurnId === null) return;
      const rows = await this.#archivedChain(turn.previousTurnId);
      for (const batch of batchesOf(rows)) yield* this.#archivedTurns(batch);
      const last = rows.at(-1);
      next = last ? last.previous_turn_id : turn.previousTurnId;
    }
  }

  async #chained(turnId: string, follow: AbortSignal): Promise<ChainedTurn> {
    try {
      const entries = await this.all(turnId, { follow });
      const created = entries[0]?.record;
      return { turnId, previousTurnId: created?.kind === 'turn.created' ? created.previousTurnId : null, entries };
    } catch (error) {
      if (!(error instanceof TurnNotFound)) throw error;
      const row = await this.#catalog.turns.get(turnId);
      return { turnId, previousTurnId: row?.previous_turn_id ?? null, entries: [] };
    }
  }

  /** The turns of a chain that are in the archive, up to the first that is not; none if the catalog is unavailable. */
  async #archivedChain(turnId: string): Promise<TurnRow[]> {
    try {
      return await this.#catalog.turns.chain(turnId, CHAIN_PAGE, { archivedOnly: true });
    } catch (error) {
      if (isCatalogUnavailable(error)) return [];
      throw error;
    }
  }

  async *#archivedTurns(rows: TurnRow[]): AsyncGenerator<ChainedTurn> {
    const [first] = rows;
    const isLong = first && first.archived_through > ARCHIVE_PAGE;
    const read = isLong ? undefined : await this.#catalog.archive.readAll(rows.map(({ id }) => id));
    for (const { id: turnId, previous_turn_id: previousTurnId, session_id: sessionId } of rows) {
      const stored = read?.get(turnId) ?? (await this.#allArchived(turnId, sessionId));
      yield { turnId, previousTurnId, entries: await this.#restore(stored, { sessionId, turnId }) };
    }
  }

  async #allArchived(turnId: string, sessionId: string): Promise<LogEntry[]> {
    const entries: LogEntry[] = [];
    for await (const batch of this.#archived(turnId, sessionId, 1, Infinity)) entries.push(...batch.entries);
    return entries;
  }

  /** The entries as they are stored: large texts are references. @throws TurnNotFound */
  async *readStored(turnId: string, { from = 1, ...following }: ReadOptions = {}): AsyncGenerator<StoredBatch> {
    const ended = this.#ended.get(turnId);
    if (ended) {
      yield { ...ended, entries: ended.entries.slice(from - 1) };
      return;
    }
    const row = await this.#row(turnId);
    if (row?.archived) {
      yield* this.#archived(turnId, row.session_id, from, Infinity);
      return;
    }
    let whole: LogEntry[] | undefined = [];
    let characters = 0;
    for await (const batch of this.#live(turnId, row, from, following)) {
      yield { ...batch, entries: batch.entries.filter(({ ordinal }) => ordinal >= from) };
      if (!whole || batch.entries[0]?.ordinal !== whole.length + 1) continue;
      whole.push(...batch.entries);
      characters += JSON.stringify(batch.entries).length;
      if (characters > MAX_GROWING_CHARACTERS) whole = undefined;
      else if (whole.at(-1)?.record.kind === 'turn.done') this.#ended.set(turnId, { ...batch, entries: whole });
    }
  }

  /** The entries from `from` on, and possibly earlier ones: those that had to be read as well. */
  async *#live(
    turnId: string,
    row: TurnRow | undefined,
    from: number,
    following: FollowOptions,
  ): AsyncGenerator<StoredBatch> {
    // The page tokens pin the read to the current run, so that it does not continue in a later one.
    const { current, firstPage } = await this.#found(turnId, async () => {
      const pages = this.#history.read(turnId, following);
      return { firstPage: await pages.next(), current: pages };
    });
    const start = startOf(turnId, firstPage.value);
    const { sessionId } = start;
    const earlier = await this.#earlierRuns(turnId, start, Math.max(from, (row?.archived_through ?? 0) + 1));
    const before = (earlier[0]?.start ?? start).carry?.ordinal ?? 0;
    if (from <= before) yield* this.#archived(turnId, sessionId, from, before);

    const turn = new Turn();
    const run: { continuedAs?: string | undefined } = {};
    const project = ({ events }: HistoryPage): StoredBatch => {
      const entries: LogEntry[] = [];
      for (const event of events) {
        entries.push(...turn.feed(event));
        run.continuedAs = event.type === 'continued' ? event.runId : undefined;
      }
      return { sessionId, entries, state: turn.state };
    };
    for (const { runId } of earlier)
      for await (const page of this.#history.read(turnId, { runId })) yield project(page);
    if (firstPage.value) yield project(firstPage.value);
    for await (const page of current) yield project(page);
    while (run.continuedAs) {
      for await (const page of this.#history.read(turnId, { ...following, runId: run.continuedAs })) {
        yield project(page);
      }
    }
  }

  /**
   * The entries of a turn from `from` down to its first, `batch` at a time; a `from` beyond the end means the end. The
   * part that is not archived is read once and completely, because the entries of a history are numbered from its start.
   * @throws TurnNotFound
   */
  async *readBackwards(turnId: string, { from, batch: size }: BackwardsOptions): AsyncGenerator<LogEntry[]> {
    const row = await this.#row(turnId);
    const archived = row?.archived_through ?? 0;
    if (!row?.archived && from > archived) {
      const live: LogEntry[] = [];
      let sessionId = '';
      for await (const batch of this.readStored(turnId, { from: archived + 1 })) {
        ({ sessionId } = batch);
        live.push(...batch.entries.filter(({ ordinal }) => ordinal <= from));
      }
      while (live.length > 0) yield await this.#restore(live.splice(-size).reverse(), { sessionId, turnId });
    }
    if (!row) return;
    for (let last = Math.min(from, archived); last > 0; last -= size) {
      const first = Math.max(1, last - size + 1);
      const entries = await this.#catalog.archive.read(turnId, first, last - first + 1);
      yield await this.#restore(entries.reverse(), { sessionId: row.session_id, turnId });
    }
  }

  /**
   * A message of a turn with all of its texts; undefined if the turn has none with this id. The log is read from its end:
   * the message is one whose tool calls are about to run, so few entries follow it.
   * @throws TurnNotFound
   */
  async message({ sessionId, turnId, messageId }: MessagePlace): Promise<ModelMessage | undefined> {
    return this.#found(turnId, async () => {
      for await (const records of this.#backwards(turnId)) {
        const message = records.find((record) => record.kind === 'model.message' && record.id === messageId);
        if (message?.kind === 'model.message') {
          return restoreRecord(message, { ...this.#source({ sessionId, turnId }), recordId: messageId });
        }
      }
      return undefined;
    });
  }

  /** The records of a turn's log as they are stored, in batches from its end; those of the last run first. */
  async *#backwards(turnId: string): AsyncGenerator<UnsequencedRecord[]> {
    const row = await this.#row(turnId);
    if (row?.archived) {
      for (let last = row.archived_through; last > 0; last -= ARCHIVE_PAGE) {
        const first = Math.max(1, last - ARCHIVE_PAGE + 1);
        const entries = await this.#catalog.archive.read(turnId, first, last - first + 1);
        yield entries.map(({ record }) => record);
      }
      return;
    }
    for await (const events of this.#history.readBackwards(turnId)) {
      yield events.flatMap((event) =>
        event.type === 'ended' && event.end.how === 'completed' ? event.end.records : [],
      );
    }
    // If an operator has reset the turn, the message of its pending calls is in the run that was reset.
    for await (const { entries } of this.readStored(turnId)) yield entries.map(({ record }) => record);
  }

  /** How a turn's workflow closed, read from Temporal; undefined while it runs. @throws TurnNotFound */
  async close(turnId: string): Promise<WorkflowClose | undefined> {
    return this.#found(turnId, () => this.#history.close(turnId));
  }

  /**
   * The first entry that is not in the archive: the start of the live part of a log.
   */
  async firstUnarchived(turnId: string): Promise<number> {
    return ((await this.#row(turnId))?.archived_through ?? 0) + 1;
  }

  /** The number of a turn's entries; undefined while it runs. @throws TurnNotFound */
  async length(turnId: string): Promise<number | undefined> {
    const row = await this.#row(turnId);
    if (row?.archived) return row.archived_through;
    if (!this.#ended.has(turnId) && !(await this.close(turnId))) return undefined;
    const [last] = await this.#firstBatch(turnId, { from: Infinity, batch: 1 });
    return last?.ordinal;
  }

  /**
   * Projects the current run of a turn up to its present end. With `follow`, also what comes after, until the turn ends.
   * @throws TurnNotFound
   */
  async currentRun(turnId: string, follow?: AbortSignal): Promise<Turn> {
    return this.#found(turnId, () => this.#running.state(turnId, follow && { signal: follow }));
  }

  /** See `RunningTurns.command`. */
  command(...args: Parameters<RunningTurns['command']>): ReturnType<RunningTurns['command']> {
    return this.#running.command(...args);
  }

  /** The first record of a turn, and its last one if the turn has ended. @throws TurnNotFound */
  async firstAndLast(turnId: string): Promise<TurnEnds> {
    const row = await this.#row(turnId);
    if (!row?.archived && !this.#ended.has(turnId)) {
      const start = await this.start(turnId);
      if (!(await this.close(turnId))) {
        const recordId = eventId(turnId, 1);
        const created = await restoreRecord(turnCreated(start), { ...this.#source(start), recordId });
        if (start.queued) {
          const position = await this.#catalog.turns.positionInQueue(start.sessionId, start.queued.number);
          return { created, done: undefined, position };
        }
        // Most turns neither wait nor are paused: their history need not be read.
        if (start.pause !== 'wait' && (row?.state ?? 'running') === 'running') return { created, done: undefined };
        const { actions } = await this.currentRun(turnId);
        const waiting = actions?.waiting.map(({ toolCallId }) => toolCallId) ?? [];
        return { created, done: undefined, waiting, paused: actions?.pauses ?? [] };
      }
    }
    const [last] = await this.#firstBatch(turnId, { from: Infinity, batch: 1 });
    const [first] = await this.#firstBatch(turnId, { from: 1, batch: 1 });
    if (first?.record.kind !== 'turn.created') throw new Error(`the log of turn ${turnId} has no beginning`);
    return { created: first.record, done: last?.record.kind === 'turn.done' ? last.record : undefined };
  }

  async #firstBatch(turnId: string, options: BackwardsOptions): Promise<LogEntry[]> {
    for await (const batch of this.readBackwards(turnId, options)) return batch;
    return [];
  }

  /** The input of a turn with all of its texts. */
  async inputOf(start: Omit<TurnStart, 'resumes' | 'queued'>): Promise<InputItem[]> {
    const recordId = eventId(start.turnId, 1);
    return (await restoreRecord(turnCreated(start), { ...this.#source(start), recordId })).input;
  }

  /** The input of a turn's workflow, or of its run `runId`. @throws TurnNotFound */
  async start(turnId: string, runId?: string): Promise<TurnStart> {
    return this.#found(turnId, () => this.#history.start(turnId, runId));
  }

  /** The turn's row in the index; undefined if there is none, or while the catalog is unavailable. */
  async #row(turnId: string): Promise<TurnRow | undefined> {
    try {
      return await this.#catalog.turns.get(turnId);
    } catch (error) {
      // A turn that is still in Temporal is read without the catalog: running turns depend on it.
      if (isCatalogUnavailable(error)) return undefined;
      throw error;
    }
  }

  async *#archived(turnId: string, sessionId: string, from: number, to: number): AsyncGenerator<StoredBatch> {
    for (let next = from; next <= to;) {
      const entries = await this.#catalog.archive.read(turnId, next, Math.min(ARCHIVE_PAGE, to - next + 1));
      const last = entries.at(-1);
      if (!last) return;
      yield { sessionId, entries };
      next = last.ordinal + 1;
    }
  }

  /** The runs before the one with input `start`, oldest first, from the run that has entry `from`. */
  async #earlierRuns(turnId: string, start: TurnStart, from: number): Promise<{ runId: string; start: TurnStart }[]> {
    const runs: { runId: string; start: TurnStart }[] = [];
    for (let { carry } = start; carry && carry.ordinal >= from; carry = runs[0]?.start.carry) {
      const runId = carry.previousRunId;
      // Throws for a run that was deleted before it was archived: a log with a gap cannot be read.
      runs.unshift({ runId, start: await this.start(turnId, runId) });
    }
    return runs;
  }

  async #restore(entries: LogEntry[], turn: { sessionId: string; turnId: string }): Promise<LogEntry[]> {
    return restoreEntries(entries, this.#source(turn));
  }

  #source({ sessionId, turnId }: { sessionId: string; turnId: string }) {
    return { blobs: this.#blobs, losses: this.#losses, sessionId, turnId };
  }

  /** Reads from the history of a turn, which may be about to start. @throws TurnNotFound, TurnNotStarted */
  async #found<T>(turnId: string, read: () => Promise<T>): Promise<T> {
    const deadline = Date.now() + STARTS_WITHIN_MS;
    let isStarting = true;
    for (let pause = FIRST_START_POLL_MS; ; pause = Math.min(2 * pause, MAX_START_POLL_MS)) {
      try {
        return await read();
      } catch (error) {
        if (!isNotFound(error)) throw error;
        if (!isStarting) throw new TurnNotFound(turnId, { cause: error });
        if (Date.now() > deadline) throw new TurnNotStarted(turnId, { cause: error });
      }
      // If it is not about to start, it may have started since it was read: it is read once more.
      isStarting = this.#accepted.has(turnId) || (await this.#isStarting(turnId));
      if (isStarting) await sleep(pause);
    }
  }

  /** Whether the turn was accepted, and Temporal has not started its workflow yet. */
  async #isStarting(turnId: string): Promise<boolean> {
    const row = await this.#catalog.turns.get(turnId);
    return row !== undefined && !row.archived && (await this.#history.isStarting(turnId, row.session_id));
  }
}

/** Groups archived turns for reading: up to `ARCHIVE_PAGE` entries. A turn that has more is read alone. */
function batchesOf(rows: TurnRow[]): TurnRow[][] {
  const batches: TurnRow[][] = [];
  let free = 0;
  for (const row of rows) {
    free -= row.archived_through;
    if (free >= 0) {
      batches.at(-1)?.push(row);
    } else {
      batches.push([row]);
      free = ARCHIVE_PAGE - row.archived_through;
    }
  }
  return batches;
}

function startOf(turnId: string, page: HistoryPage | undefined): TurnStart {
  const [first] = page?.events ?? [];
  if (first?.type !== 'started') throw new Error(`the history of turn ${turnId} does not begin with its start`);
  return first.start;
}
