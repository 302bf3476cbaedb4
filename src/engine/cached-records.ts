import type { BlobStore } from '../blobs/blob-store.ts';
import type { CallModelInput, TurnStart } from '../core/history.ts';
import { constantsOf, type CallConstants } from '../core/model-call.ts';
import { Turn } from '../core/turn.ts';
import type { LogEntry, UnsequencedRecord } from '../core/records/log.ts';
import type { ModelMessage } from '../core/records/message.ts';
import { ROOT_THREAD } from '../core/records/threads.ts';
import type { OnceLog } from '../lib/once-log.ts';
import type { TurnHistory } from '../temporal/history.ts';
import { recordCharacters, recordsOf } from './ended-turn.ts';
import { restoreEntries } from './restore-records.ts';
import type { TurnLogReader } from './turn-log-reader.ts';

/** Where the records of turns are read from. */
export interface RecordSources {
  logs: TurnLogReader;
  history: TurnHistory;
  blobs: BlobStore;
  losses: OnceLog;
}

interface CachedRecordsOptions extends RecordSources {
  runId: string;
  /** The result under a stamp that this process has produced or received. */
  stamped: (stamp: string) => UnsequencedRecord[] | undefined;
}

type TurnIds = Pick<CallModelInput, 'sessionId' | 'turnId'>;

/** A thread of a turn, with the fields of both in the input of its model call. */
type ThreadOfCall = TurnIds & Pick<CallModelInput, 'threadId' | 'start'> & Partial<Pick<CallModelInput, 'recent'>>;

/**
 * The records of a turn in progress that this process has, from the turn's beginning: for all threads of one run, so
 * that threads which work in parallel do not each read the log. Concurrent readers wait for each other.
 */
export class CachedRecords {
  readonly #options: CachedRecordsOptions;
  /** The records of the runs before this one. */
  #earlier: UnsequencedRecord[] = [];
  /** The records from this run's history. */
  #projected: UnsequencedRecord[] = [];
  /** The entries after these, up to `#lastEventId`: texts that are in the blob store are not restored yet. */
  #read: LogEntry[] = [];
  /** The records that this process has produced or received, and not read from the history yet. */
  #unread: UnsequencedRecord[] = [];
  /** Set once it was read, or was in the input of a model call. */
  #start: TurnStart | undefined;
  #turn = new Turn();
  #lastEventId = 0;
  #characters = 1;
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: CachedRecordsOptions) {
    this.#options = options;
  }

  get runId(): string {
    return this.#options.runId;
  }

  /** Their approximate size. */
  get characters(): number {
    return this.#characters;
  }

  /** The turn's records up to the ordinal that a model call names. */
  upTo(input: CallModelInput): Promise<UnsequencedRecord[]> {
    return this.#next(() => this.#upTo(input));
  }

  /**
   * The constants of the model calls of a thread. Reads the history if this process does not have them, but no blob:
   * they are available even if reading the turn's texts kills workers.
   */
  constants(input: ThreadOfCall): Promise<CallConstants> {
    return this.#next(async () => {
      this.#start ??= input.start;
      if (!this.#constants(input)) await this.#readHistory(input);
      const constants = this.#constants(input);
      if (!constants) throw new Error(`turn ${input.turnId} has no thread ${input.threadId}`);
      return constants;
    });
  }

  /** All records of the turn that are in the history: texts that are in the blob store may not be restored. */
  soFar(turn: TurnIds): Promise<UnsequencedRecord[]> {
    return this.#next(async () => {
      await this.#readHistory(turn);
      await this.#readEarlier(turn);
      return [...this.#earlier, ...this.#projected, ...recordsOf(this.#read)];
    });
  }

  /** A message that was read from the history of this run, if it was: its texts may not be restored. */
  message(id: string): ModelMessage | undefined {
    const isMessage = (record: UnsequencedRecord) => record.kind === 'model.message' && record.id === id;
    const found = recordsOf(this.#read).find(isMessage) ?? this.#projected.find(isMessage);
    return found?.kind === 'model.message' ? found : undefined;
  }

  /** The turn's records up to `upTo` if `recent` are its next results; undefined if one is missing. Adds nothing. */
  ahead({ recent, upTo }: Pick<CallModelInput, 'recent' | 'upTo'>): UnsequencedRecord[] | undefined {
    const stamped = recent.map((stamp) => this.#options.stamped(stamp));
    const next = stamped.flatMap((records) => records ?? []);
    if (stamped.includes(undefined) || this.#count + next.length !== upTo) return undefined;
    return [...this.#earlier, ...this.#projected, ...this.#unread, ...next];
  }

  /** Reads once all earlier reads have ended. */
  #next<T>(read: () => Promise<T>): Promise<T> {
    const result = this.#last.then(read);
    // The records may be incomplete: the next reader begins anew.
    this.#last = result.catch(() => this.#clear());
    return result;
  }

  async #upTo(input: CallModelInput): Promise<UnsequencedRecord[]> {
    const { upTo, turnId } = input;
    if (this.#count === 0) await this.#begin(input);
    this.#addRecent(input);
    if (this.#count < upTo) await this.#readOn(input);
    if (this.#count < upTo) throw new Error(`turn ${turnId} has no entry ${upTo}`);
    return [...this.#earlier, ...this.#projected, ...this.#unread].slice(0, upTo);
  }

  get #count(): number {
    return this.#earlier.length + this.#projected.length + this.#unread.length;
  }

  async #begin({ start, createdAt: at, ...turn }: CallModelInput): Promise<void> {
    if (!start) return;
    const entries = new Turn().feed({ type: 'started', at, start });
    this.#add(recordsOf(await this.#restore(entries, turn)));
  }

  /** Undefined as long as the start, or the record that begins the thread, is missing. */
  #constants({ threadId, recent = [] }: ThreadOfCall): CallConstants | undefined {
    const start = this.#start;
    if (!start || threadId === ROOT_THREAD) return start && constantsOf(start);
    // The sub-agents that were open before this run, and those that it has started.
    const { carry, resumes } = start;
    const subAgents = carry ? carry.threads.flatMap(({ agent }) => agent ?? []) : (resumes?.threads ?? []);
    const open = subAgents.find((agent) => agent.threadId === threadId);
    const stamped = recent.flatMap((stamp) => this.#options.stamped(stamp) ?? []);
    const records = [...this.#projected, ...recordsOf(this.#read), ...this.#unread, ...stamped];
    const created = records.find((record) => record.kind === 'thread.created' && record.thread.threadId === threadId);
    const agent = open ?? (created?.kind === 'thread.created' ? created.thread : undefined);
    return agent && constantsOf(start, agent);
  }

  /**
   * Adds the results that this process has produced, if nothing is missing before them. The stamps are those of the
   * turn's last results, in the order of the log, and the last of their records is the one at `upTo`.
   */
  #addRecent({ recent, upTo }: CallModelInput): void {
    const stamped = recent.map((stamp) => this.#options.stamped(stamp));
    const results = stamped.slice(stamped.lastIndexOf(undefined) + 1);
    const last = results.flatMap((records) => records ?? []);
    const known = this.#count - (upTo - last.length);
    if (known >= 0 && known < last.length) this.#add(last.slice(known));
  }

  async #readOn(input: CallModelInput): Promise<void> {
    if (this.#turn.ordinal < input.upTo) await this.#readHistory(input);
    await this.#readEarlier(input);
    this.#projected.push(...recordsOf(await this.#restore(this.#read.splice(0), input)));
    this.#unread = [];
    this.#characters = recordCharacters([...this.#earlier, ...this.#projected]);
  }

  async #readEarlier({ turnId }: TurnIds): Promise<void> {
    const { carry } = this.#turn.start ?? {};
    if (!carry || this.#earlier.length > 0) return;
    this.#earlier = recordsOf((await this.#options.logs.all(turnId)).slice(0, carry.ordinal));
    this.#characters += recordCharacters(this.#earlier);
  }

  async #readHistory({ turnId }: TurnIds): Promise<void> {
    const { history, runId } = this.#options;
    const { events, lastEventId } = await history.readSince(turnId, runId, this.#lastEventId);
    const entries = events.flatMap((event) => this.#turn.feed(event));
    this.#start = this.#turn.start;
    this.#read.push(...entries);
    this.#lastEventId = lastEventId;
    this.#characters += recordCharacters(recordsOf(entries));
  }

  #add(records: UnsequencedRecord[]): void {
    this.#unread.push(...records);
    this.#characters += recordCharacters(records);
  }

  #clear(): void {
    this.#earlier = [];
    this.#projected = [];
    this.#read = [];
    this.#unread = [];
    this.#start = undefined;
    this.#turn = new Turn();
    this.#lastEventId = 0;
    this.#characters = 1;
  }

  #restore(entries: LogEntry[], { sessionId, turnId }: TurnIds): Promise<LogEntry[]> {
    const { blobs, losses } = this.#options;
    return restoreEntries(entries, { blobs, losses, sessionId, turnId });
  }
}
