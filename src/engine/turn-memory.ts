import type { GivenConversation } from '../core/given-conversation.ts';
import type { UnsequencedRecord } from '../core/records/log.ts';
import type { ModelMessage } from '../core/records/message.ts';
import { recordCharacters } from './ended-turn.ts';
import { CachedRecords, type RecordSources } from './cached-records.ts';

/** A conversation that a client has given with its turn, and the size of its JSON. */
export interface ReadConversation {
  given: GivenConversation;
  characters: number;
}

/** What a process keeps in memory of a turn for the activities that run it. */
export class TurnMemory {
  /** The messages with tool calls that another process has produced, by their stamps. */
  readonly messages = new SharedReads<ModelMessage>((message) => recordCharacters([message]));
  /** The conversation of the client, by its blob. */
  readonly given = new SharedReads<ReadConversation>(({ characters }) => characters);
  readonly #sources: RecordSources;
  readonly #results = new Map<string, UnsequencedRecord[]>();
  #resultCharacters = 1;
  #run: CachedRecords | undefined;

  constructor(sources: RecordSources) {
    this.#sources = sources;
  }

  /** Their approximate size. */
  get characters(): number {
    const read = this.messages.characters + this.given.characters;
    return this.#resultCharacters + read + (this.#run?.characters ?? 0);
  }

  /** Adds a result that this process has produced or received. */
  add(stamp: string, records: UnsequencedRecord[]): void {
    if (this.#results.has(stamp)) return;
    this.#results.set(stamp, records);
    this.#resultCharacters += recordCharacters(records);
  }

  /** The result under a stamp that this process has produced or received. */
  result(stamp: string): UnsequencedRecord[] | undefined {
    return this.#results.get(stamp);
  }

  /** The records of a run; those of another run are dropped, since a turn has one at a time. */
  run(runId: string): CachedRecords {
    const stamped = (stamp: string) => this.result(stamp);
    const run = this.known(runId) ?? new CachedRecords({ ...this.#sources, runId, stamped });
    this.#run = run;
    return run;
  }

  /** The records of a run if they are in memory. */
  known(runId: string): CachedRecords | undefined {
    return this.#run?.runId === runId ? this.#run : undefined;
  }
}

/** Values that were read, by key. Concurrent readers share a read; a read that fails or finds nothing is repeated. */
class SharedReads<T> {
  readonly #reads = new Map<string, Promise<T | undefined>>();
  readonly #sizeOf: (value: T) => number;
  #characters = 0;

  constructor(sizeOf: (value: T) => number) {
    this.#sizeOf = sizeOf;
  }

  get characters(): number {
    return this.#characters;
  }

  async get(key: string, read: () => Promise<T | undefined>): Promise<T | undefined> {
    const known = this.#reads.get(key);
    if (known) return known;
    const reading = read();
    this.#reads.set(key, reading);
    const value = await reading.catch((error: unknown) => {
      this.#reads.delete(key);
      throw error;
    });
    if (value === undefined) this.#reads.delete(key);
    else this.#characters += this.#sizeOf(value);
    return value;
  }
}
