import { LRUCache } from 'lru-cache';
import { restore } from '../blobs/offload.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { CallModelInput, CallToolInput } from '../core/history.ts';
import { turnCreated, TurnProjection } from '../core/projection.ts';
import type { LogEntry, ModelMessage, ToolCall, TurnCreated, UnsequencedRecord } from '../core/records.ts';
import type { TurnHistory } from '../temporal/history.ts';
import { callHash } from './call-hash.ts';
import type { SpeculativeCall } from './speculation.ts';
import type { MessagePlace, TurnLogReader } from './turn-log-reader.ts';

/** A turn in progress, as far as this worker knows it: its records are the three parts, one after the other. */
interface InProgress {
  runId: string;
  /** From the runs before this one. */
  earlier: UnsequencedRecord[];
  /** From this run's history up to `lastEventId`. */
  projected: UnsequencedRecord[];
  /** Known without the history. */
  ahead: UnsequencedRecord[];
  projection: TurnProjection;
  lastEventId: number;
  /** About what it takes. */
  characters: number;
}

/** Of each of the caches. */
const MAX_CACHED_CHARACTERS = 64 * 1024 * 1024;

/**
 * The records behind a model call: the turns before it, and its own turn up to the ordinal that the workflow says.
 *
 * Activities get references, not transcripts, so each model call has to find its conversation. Mostly this worker has
 * it: results that were produced here are remembered under their stamps, and the workflow says which stamps it has
 * accepted. An attempt whose result did not make it into the history has another stamp than the one that did, so what
 * is remembered under an accepted stamp is what the log says. Everything else is read from the history, from its end
 * backwards.
 */
export class Conversations {
  readonly #logs: TurnLogReader;
  readonly #history: TurnHistory;
  readonly #blobs: BlobStore;
  readonly #ended = new LRUCache<string, UnsequencedRecord[]>({
    maxSize: MAX_CACHED_CHARACTERS,
    sizeCalculation: charactersOf,
  });
  readonly #inProgress = new LRUCache<string, InProgress>({
    maxSize: MAX_CACHED_CHARACTERS,
    sizeCalculation: ({ characters }) => characters,
  });
  readonly #stamped = new LRUCache<string, UnsequencedRecord[]>({
    maxSize: MAX_CACHED_CHARACTERS,
    sizeCalculation: charactersOf,
  });
  /** Messages with tool calls that another worker has produced, by their stamps. Concurrent callers share one read. */
  readonly #messages = new LRUCache<string, ModelMessage, MessagePlace>({
    maxSize: MAX_CACHED_CHARACTERS,
    sizeCalculation: (message) => charactersOf([message]),
    fetchMethod: (_stamp, _known, { context }) => this.#logs.message(context),
    // A read that is evicted still has its callers.
    ignoreFetchAbort: true,
  });

  constructor({ logs, history, blobs }: { logs: TurnLogReader; history: TurnHistory; blobs: BlobStore }) {
    this.#logs = logs;
    this.#history = history;
    this.#blobs = blobs;
  }

  /** Remembers what an activity is about to return under `stamp`. */
  remember(stamp: string, records: UnsequencedRecord[]): void {
    this.#stamped.set(stamp, records);
  }

  /** All records that a model call answers, oldest first. */
  async load(input: CallModelInput, runId: string, signal: AbortSignal): Promise<UnsequencedRecord[]> {
    const [before, own] = await Promise.all([
      this.#chain(input.previousTurnId, input.sessionId, signal),
      this.#turn(input, runId),
    ]);
    return [...before, ...own];
  }

  /** What the first model call of a turn will answer, if the turn begins like this; not before turn `after` has ended. */
  async beginning(start: Omit<SpeculativeCall, 'trace'>, signal: AbortSignal): Promise<UnsequencedRecord[]> {
    const { sessionId, previousTurnId, after, afterLog } = start;
    if (after !== null && afterLog && !this.#ended.has(after)) {
      this.#ended.set(after, recordsOf(await this.#restore(afterLog, sessionId)));
    }
    const [before, created] = await Promise.all([
      this.#chain(previousTurnId, sessionId, signal),
      restore(turnCreated(start), { blobs: this.#blobs, sessionId }),
      after === null ? undefined : this.#endedTurn(after, sessionId, signal),
    ]);
    return [...before, created];
  }

  /**
   * The tool call that an activity is to run: of the attempt at its message that the workflow has accepted, since other
   * attempts have the same message id, and may call other tools.
   * @throws Error if it is not the call that was scheduled, and approved where that was needed.
   */
  async toolCall({ source, sessionId }: Pick<CallToolInput, 'source' | 'sessionId'>): Promise<ToolCall> {
    const { turnId, messageId, stamp, index, run } = source;
    const made = this.#stamped.get(stamp)?.find((record) => record.kind === 'model.message');
    const message = made ?? (await this.#messages.fetch(stamp, { context: { sessionId, turnId, messageId } }));
    const call = message?.toolCalls[index];
    if (!call || callHash(call) !== run?.callHash) throw new Error('the tool call is not the one that was decided on');
    return call;
  }

  /** The turns of a chain up to `turnId`. @throws Error if one is of another session, whose readers may be others */
  async #chain(turnId: string | null, sessionId: string, signal: AbortSignal): Promise<UnsequencedRecord[]> {
    const turns: UnsequencedRecord[][] = [];
    const add = (records: UnsequencedRecord[]): void => {
      assertOfSession(records, sessionId);
      turns.push(records);
    };
    for (let next = turnId; next !== null;) {
      const known = this.#ended.get(next);
      if (known) {
        add(known);
        next = createdIn(known)?.previousTurnId ?? null;
        continue;
      }
      for await (const { turnId: id, previousTurnId, entries } of this.#logs.chain(next, signal)) {
        const records = recordsOf(entries);
        // The conversation goes on without a turn that an operator has deleted.
        if (records.length > 0) this.#ended.set(id, records);
        add(records);
        next = previousTurnId;
        if (next !== null && this.#ended.has(next)) break;
      }
    }
    return turns.reverse().flat();
  }

  /** @throws Error if the turn belongs to another session, whose readers may be others */
  async #endedTurn(turnId: string, sessionId: string, signal: AbortSignal): Promise<void> {
    // A turn announces its end before it closes, so the last moment of it may have to be waited for.
    const records = this.#ended.get(turnId) ?? recordsOf(await this.#logs.all(turnId, { follow: signal }));
    assertOfSession(records, sessionId);
    this.#ended.set(turnId, records);
  }

  async #turn(input: CallModelInput, runId: string): Promise<UnsequencedRecord[]> {
    const { turnId, upTo } = input;
    const known = this.#inProgress.get(turnId);
    // Whoever brings it up to date has it alone: another attempt that asks meanwhile, or what fails halfway, begins anew.
    this.#inProgress.delete(turnId);
    const own = known?.runId === runId ? known : await this.#begin(input, runId);
    this.#addRecent(input, own);
    if (count(own) < upTo) await this.#readOn(input, own);
    if (count(own) < upTo) throw new Error(`turn ${turnId} has no entry ${upTo}`);
    this.#inProgress.set(turnId, own);
    return [...own.earlier, ...own.projected, ...own.ahead].slice(0, upTo);
  }

  async #begin({ start, createdAt: at, sessionId }: CallModelInput, runId: string): Promise<InProgress> {
    const projection = new TurnProjection();
    const own: InProgress = { runId, earlier: [], projected: [], ahead: [], projection, lastEventId: 0, characters: 1 };
    if (start) {
      const entries = new TurnProjection().feed({ type: 'started', at, start });
      own.ahead = recordsOf(await this.#restore(entries, sessionId));
      own.characters += charactersOf(own.ahead);
    }
    return own;
  }

  /** Adds the results that were produced here, if they are all that is missing. */
  #addRecent({ recent, upTo }: CallModelInput, own: InProgress): void {
    const stamped = recent.map((stamp) => this.#stamped.get(stamp));
    const fresh = stamped.flatMap((records) => records ?? []);
    if (stamped.includes(undefined) || count(own) + fresh.length !== upTo) return;
    own.ahead.push(...fresh);
    own.characters += charactersOf(fresh);
  }

  async #readOn({ turnId, sessionId }: CallModelInput, own: InProgress): Promise<void> {
    const isFirst = own.lastEventId === 0;
    const { events, lastEventId } = await this.#history.readSince(turnId, own.runId, own.lastEventId);
    const entries = events.flatMap((event) => own.projection.feed(event));
    const { carry } = own.projection.start ?? {};
    if (isFirst && carry) own.earlier = recordsOf((await this.#logs.all(turnId)).slice(0, carry.ordinal));
    own.projected.push(...recordsOf(await this.#restore(entries, sessionId)));
    own.ahead = [];
    own.lastEventId = lastEventId;
    own.characters = charactersOf([...own.earlier, ...own.projected]);
  }

  #restore(entries: LogEntry[], sessionId: string): Promise<LogEntry[]> {
    return Promise.all(entries.map((entry) => restore(entry, { blobs: this.#blobs, sessionId })));
  }
}

function count({ earlier, projected, ahead }: InProgress): number {
  return earlier.length + projected.length + ahead.length;
}

/** About how much memory records take; at least 1, as the caches want it. */
function charactersOf(records: UnsequencedRecord[]): number {
  return JSON.stringify(records).length;
}

/** How a turn began, from its records. */
/** @throws Error if the records are those of another session's turn */
function assertOfSession(records: UnsequencedRecord[], sessionId: string): void {
  const created = createdIn(records);
  if (created && created.sessionId !== sessionId) {
    throw new Error(`turn ${created.turnId} is not of session ${sessionId}`);
  }
}

function createdIn([first]: UnsequencedRecord[]): Omit<TurnCreated, 'id'> | undefined {
  return first?.kind === 'turn.created' ? first : undefined;
}

function recordsOf(entries: LogEntry[]): UnsequencedRecord[] {
  return entries.map(({ record }) => record);
}
