import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import { isCatalogUnavailable } from '../catalog/database.ts';
import type { TurnRow } from '../catalog/schema.ts';
import type { TurnStart, WorkflowClose } from '../core/history.ts';
import { eventId } from '../core/ids.ts';
import { turnCreated, type Turn } from '../core/turn.ts';
import type { InputItem } from '../core/records/input.ts';
import type { WithoutId } from '../core/records/base.ts';
import type { LogEntry, UnsequencedRecord } from '../core/records/log.ts';
import type { ToolResponse } from '../core/records/results.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { PauseReason, TurnCreated, TurnDone } from '../core/records/turn.ts';
import { EncryptionKeyMissing } from '../encryption/cipher.ts';
import type { OnceLog } from '../lib/once-log.ts';
import { isNotFound } from '../temporal/errors.ts';
import type { FollowOptions, TurnHistory } from '../temporal/history.ts';
import { endedTurns, recordsOf, type EndedTurn } from './ended-turn.ts';
import { EngineError } from './errors.ts';
import { RunningTurns } from './running-turns.ts';
import { restoreEntries, restoreRecord } from './restore-records.ts';
import {
  ARCHIVE_PAGE,
  archivedTurn,
  EndedLog,
  LiveLog,
  type BackwardsOptions,
  type StoredBatch,
  type TurnSource,
  type TurnStatus,
} from './turn-sources.ts';
import { isUnavailable } from './unavailable.ts';

/** Neither the archive nor Temporal has the turn. */
export class TurnNotFound extends EngineError {
  constructor(turnId: string, options?: ErrorOptions) {
    super('turn_not_found', `there is no turn ${turnId}`, options);
  }
}

/** The session has accepted the turn, and Temporal has not started its workflow yet. */
class TurnNotStarted extends EngineError {
  constructor(turnId: string, options?: ErrorOptions) {
    super('unavailable', `turn ${turnId} was accepted and has not started yet: try again`, options);
  }
}

/** The result of reading a turn; undefined if an operator has deleted the turn before it was archived. */
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
 * The result of reading one of several turns; undefined if it no longer exists, or cannot be read, which is logged: one
 * turn must not fail a list.
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

/** The position of a model's message. */
interface MessageKey {
  sessionId: string;
  turnId: string;
  messageId: string;
}

/** A turn of a chain with its whole log; without entries if an operator has deleted the turn before it was archived. */
interface ChainedTurn {
  turnId: string;
  previousTurnId: string | null;
  entries: LogEntry[];
}

/** The first record of a turn, and its last one if the turn has ended. */
export interface TurnSummary {
  created: TurnCreated;
  done: TurnDone | undefined;
  /** The ids of the calls that wait for answers while the turn runs. */
  waiting?: string[];
  /** Why it is paused. */
  paused?: PauseReason[];
  /** The turn's position in the queue of its session, from 1, if it waits there. */
  position?: number;
}

/** Entries that are restored together: a stored entry has at most 128 KiB, a restored one may have megabytes. */
const RESTORE_BATCH_SIZE = 20;

/** Temporal starts the workflow of an accepted turn within milliseconds. Under overload, readers wait this long. */
const STARTS_WITHIN_MS = 5_000;
const FIRST_START_POLL_MS = 10;
const MAX_START_POLL_MS = 250;
const MAX_ACCEPTED = 10_000;

/** Turns of a chain per read of the index. */
const CHAIN_PAGE = 1_000;

interface TurnLogReaderOptions {
  catalog: KernelCatalog;
  history: TurnHistory;
  blobs: BlobStore;
  losses: OnceLog;
}

/**
 * Reads the logs of turns. Ended turns, and the ended runs of long ones, are in the archive; the rest is in Temporal's
 * histories. Entries are returned with all of their texts.
 */
export class TurnLogReader {
  readonly #options: TurnLogReaderOptions;
  readonly #running: RunningTurns;
  readonly #ended = endedTurns();

  /** Turns that were accepted a moment ago, in this process. For other turns, Temporal is asked. */
  readonly #accepted = new LRUCache<string, true>({ max: MAX_ACCEPTED, ttl: STARTS_WITHIN_MS });

  constructor(options: TurnLogReaderOptions) {
    this.#options = options;
    this.#running = new RunningTurns(options.history);
  }

  /** The session has accepted a turn, whose workflow Temporal is about to start. */
  accepted(turnId: string): void {
    this.#accepted.set(turnId, true);
  }

  /** Where the log of a turn is. A turn that is in memory or in the archive is read without Temporal. */
  async locate(turnId: string): Promise<TurnSource> {
    const ended = this.#ended.get(turnId);
    if (ended) return EndedLog.cached(ended);
    const { catalog, history } = this.#options;
    const { archive } = catalog;
    // A turn that is still in Temporal is read without the catalog: running turns depend on it.
    const row = await unlessUnavailable(catalog.turns.get(turnId));
    if (row?.archived) return EndedLog.archived(row, archive);
    return new LiveLog({
      turnId,
      row,
      archive,
      history,
      found: (read) => this.#found(turnId, read),
      onEnded: (turn) => {
        // The turn may already be in memory with its texts.
        if (!this.#ended.has(turnId)) this.#ended.set(turnId, turn);
      },
    });
  }

  /** The entries of a turn in order, in batches. @throws TurnNotFound */
  async *read(turnId: string, options: ReadOptions = {}): AsyncGenerator<LogEntry[]> {
    for await (const { sessionId, entries } of this.readStored(turnId, options)) {
      yield* this.#restored(entries, { sessionId, turnId });
    }
  }

  /** All entries of a turn. @throws TurnNotFound */
  async all(turnId: string, options: ReadOptions = {}): Promise<LogEntry[]> {
    return (await Array.fromAsync(this.read(turnId, options))).flat();
  }

  /** The entries as they are stored: large texts are references. @throws TurnNotFound */
  async *readStored(turnId: string, { from = 1, ...following }: ReadOptions = {}): AsyncGenerator<StoredBatch> {
    yield* (await this.locate(turnId)).entries(from, following);
  }

  /** The entries of a turn from the end on, the last one first: see `BackwardsOptions`. @throws TurnNotFound */
  async *readBackwards(turnId: string, options: BackwardsOptions): AsyncGenerator<LogEntry[]> {
    const source = await this.locate(turnId);
    for await (const { sessionId, entries } of source.backwards(options)) {
      yield await this.#restore(entries, { sessionId, turnId });
    }
  }

  /**
   * All entries of a turn, once it has ended. They stay in memory while there is room, with all of their texts.
   * @throws TurnNotFound, and what aborts `follow`
   */
  async ended(turnId: string, follow: AbortSignal): Promise<LogEntry[]> {
    const turn = this.#ended.get(turnId) ?? (await (await this.locate(turnId)).whole(follow));
    return this.#keep(turn);
  }

  /**
   * The turns of a chain, newest first. Turns that are not in memory are read and stay there: the first one alone,
   * because often it has just ended, and this process has the others; the others from the archive in batches. `follow`:
   * see `ReadOptions`.
   */
  async *chain(turnId: string, follow: AbortSignal): AsyncGenerator<ChainedTurn> {
    for (let next: string | null = turnId; next !== null;) {
      const isKnown = this.#ended.has(next);
      const turn: ChainedTurn = await this.#chained(next, follow);
      yield turn;
      next = turn.previousTurnId;
      if (isKnown || next === null || this.#ended.has(next)) continue;
      for await (const archived of this.#archivedChain(next)) {
        yield archived;
        next = archived.previousTurnId;
      }
    }
  }

  async #chained(turnId: string, follow: AbortSignal): Promise<ChainedTurn> {
    const entries = (await unlessNotFound(this.ended(turnId, follow))) ?? [];
    const created = entries[0]?.record;
    if (created?.kind === 'turn.created') return { turnId, previousTurnId: created.previousTurnId, entries };
    const row = await this.#options.catalog.turns.get(turnId);
    return { turnId, previousTurnId: row?.previous_turn_id ?? null, entries };
  }

  /** The turns of a chain that are in the archive, up to the first that is not, or that is in memory. */
  async *#archivedChain(turnId: string): AsyncGenerator<ChainedTurn> {
    const { archive, turns } = this.#options.catalog;
    const rows = (await unlessUnavailable(turns.chain(turnId, CHAIN_PAGE, { archivedOnly: true }))) ?? [];
    const known = rows.findIndex(({ id }) => this.#ended.has(id));
    for (const batch of batchesOf(known < 0 ? rows : rows.slice(0, known))) {
      const isLong = batch.some(({ archived_through: length }) => length > ARCHIVE_PAGE);
      const read = isLong ? undefined : await archive.readAll(batch.map(({ id }) => id));
      for (const row of batch) {
        const entries = read?.get(row.id);
        const archived = archivedTurn(row);
        const turn = entries ? { ...archived, entries } : await EndedLog.archived(row, archive).whole();
        yield { turnId: row.id, previousTurnId: row.previous_turn_id, entries: await this.#keep(turn) };
      }
    }
  }

  async #keep(turn: EndedTurn): Promise<LogEntry[]> {
    if (turn.restored) return turn.restored;
    const restored = (await Array.fromAsync(this.#restored(turn.entries, turn))).flat();
    // The cache measures a turn when it is added. An empty log is that of a turn whose archive was deleted.
    if (restored.length > 0) this.#ended.set(turn.turnId, { ...turn, restored });
    return restored;
  }

  /**
   * A message of a turn with all of its texts; undefined if the turn has none with this id. The log is read from its
   * end: the message is one whose tool calls are about to run, so few entries follow it.
   * @throws TurnNotFound
   */
  async message({ sessionId, turnId, messageId }: MessageKey): Promise<ModelMessage | undefined> {
    for await (const records of (await this.locate(turnId)).newest()) {
      const message = records.find((record) => record.kind === 'model.message' && record.id === messageId);
      if (message?.kind === 'model.message') {
        return restoreRecord(message, { ...this.#source({ sessionId, turnId }), recordId: messageId });
      }
    }
    return undefined;
  }

  /**
   * The results of calls of a thread, with all of their texts, by the ids of the calls. The log is read from its end,
   * since they are about to be used, and then that of the turns before it.
   * @throws TurnNotFound
   */
  async responses(
    { sessionId, turnId, threadId }: Omit<MessageKey, 'messageId'> & { threadId: string },
    calls: readonly string[],
    signal: AbortSignal,
  ): Promise<Map<string, WithoutId<ToolResponse>>> {
    const found = new Map<string, WithoutId<ToolResponse>>();
    const wanted = new Set(calls);
    let previous: string | null | undefined;
    const take = async (records: readonly UnsequencedRecord[], ofTurn: string): Promise<boolean> => {
      for (const record of records) {
        if (record.kind === 'turn.created') previous ??= record.previousTurnId;
        if (record.kind !== 'tool.response' || record.threadId !== threadId || !wanted.delete(record.toolCallId))
          continue;
        const source = { ...this.#source({ sessionId, turnId: ofTurn }), recordId: record.toolCallId };
        found.set(record.toolCallId, await restoreRecord(record, source));
      }
      return wanted.size === 0;
    };
    if (await take([], turnId)) return found;
    for await (const records of (await this.locate(turnId)).newest()) if (await take(records, turnId)) return found;
    if (!previous) return found;
    for await (const turn of this.chain(previous, signal)) {
      if (await take(recordsOf(turn.entries), turn.turnId)) return found;
    }
    return found;
  }

  /** A turn, and the calls that wait for answers after it; undefined if there is no such turn. */
  async status(turnId: string): Promise<TurnStatus | undefined> {
    return unlessNotFound((await this.locate(turnId)).status());
  }

  /** How a turn's workflow closed, read from Temporal; undefined while it runs. @throws TurnNotFound */
  async close(turnId: string): Promise<WorkflowClose | undefined> {
    return this.#found(turnId, () => this.#options.history.close(turnId));
  }

  /** The first entry that the archive may lack. Readers that follow a turn have its log in memory from there on. */
  async firstUnarchived(turnId: string): Promise<number> {
    return (await this.locate(turnId)).firstUnarchived;
  }

  /** The number of a turn's entries; undefined while it runs. @throws TurnNotFound */
  async length(turnId: string): Promise<number | undefined> {
    return (await this.locate(turnId)).length();
  }

  /**
   * Projects the current run of a turn up to its present end; with `follow`, until the turn ends.
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
  async firstAndLast(turnId: string): Promise<TurnSummary> {
    const source = await this.locate(turnId);
    if (source.isLive) {
      const start = await source.start();
      if (!(await source.close())) return this.#openEnds(start, (source.row?.state ?? 'running') !== 'running');
    }
    const { sessionId, first, last } = await source.ends();
    const [created, done] = await this.#restore(
      [first, last].flatMap((entry) => entry ?? []),
      { sessionId, turnId },
    );
    if (created?.record.kind !== 'turn.created') throw new Error(`the log of turn ${turnId} has no beginning`);
    return { created: created.record, done: done?.record.kind === 'turn.done' ? done.record : undefined };
  }

  /** The summary of a turn that has not ended. */
  async #openEnds(start: TurnStart, isPaused: boolean): Promise<TurnSummary> {
    const { turnId, sessionId, queued, pause } = start;
    const created = await this.#firstRecord(start);
    if (queued) {
      const position = await this.#options.catalog.turns.positionInQueue(sessionId, queued.number);
      return { created, done: undefined, position };
    }
    // Most turns neither wait nor are paused: their history need not be read.
    if (pause !== 'wait' && !isPaused) return { created, done: undefined };
    const { actions } = await this.currentRun(turnId);
    const waiting = actions?.questions.waiting.map(({ toolCallId }) => toolCallId) ?? [];
    return { created, done: undefined, waiting, paused: actions?.pauses.reasons ?? [] };
  }

  /** The input of a turn with all of its texts. */
  async inputOf(start: Omit<TurnStart, 'resumes' | 'queued'>): Promise<InputItem[]> {
    return (await this.#firstRecord(start)).input;
  }

  /** The first record of a turn with all of its texts. */
  #firstRecord(start: Omit<TurnStart, 'resumes' | 'queued'>): Promise<TurnCreated> {
    return restoreRecord(turnCreated(start), { ...this.#source(start), recordId: eventId(start.turnId, 1) });
  }

  /** The input of a turn's workflow, or of its run `runId`. @throws TurnNotFound */
  async start(turnId: string, runId?: string): Promise<TurnStart> {
    return this.#found(turnId, () => this.#options.history.start(turnId, runId));
  }

  /** Entries with their texts, a few at a time. */
  async *#restored(entries: LogEntry[], turn: { sessionId: string; turnId: string }): AsyncGenerator<LogEntry[]> {
    for (let from = 0; from < entries.length; from += RESTORE_BATCH_SIZE) {
      yield await this.#restore(entries.slice(from, from + RESTORE_BATCH_SIZE), turn);
    }
  }

  async #restore(entries: LogEntry[], turn: { sessionId: string; turnId: string }): Promise<LogEntry[]> {
    return restoreEntries(entries, this.#source(turn));
  }

  #source({ sessionId, turnId }: { sessionId: string; turnId: string }) {
    const { blobs, losses } = this.#options;
    return { blobs, losses, sessionId, turnId };
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
    const row = await this.#options.catalog.turns.get(turnId);
    return row !== undefined && !row.archived && (await this.#options.history.isStarting(turnId, row.session_id));
  }
}

/** The result of reading the catalog; undefined while it is unavailable. */
async function unlessUnavailable<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (isCatalogUnavailable(error)) return undefined;
    throw error;
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
