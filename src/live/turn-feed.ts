import { charactersOf, diffMessage } from '../core/message.ts';
import type { LogEntry, LogRecord } from '../core/records.ts';
import type { LiveFrame, LiveSnapshot } from './bus.ts';
import { FeedBudget } from './feed-budget.ts';
import { ReceivedMessages, type LiveChange } from './received-messages.ts';
import type { FollowedEntry, NumberedFrame, StreamSequencer } from './stream-sequencer.ts';

export type Send = (frames: NumberedFrame[]) => void;

/** What is kept for readers to come, in entries and about characters; what is older they read from the log. */
const MAX_ENTRIES = 4_000;
const MAX_CHARACTERS = 16 * 1024 * 1024;

/**
 * What this process knows of one turn, and its readers: the entries of the log since `firstOrdinal` and the messages in
 * progress come in, each reader's stream goes out. No I/O: `turn-tail.ts` feeds it.
 */
export class TurnFeed {
  #firstOrdinal = 1;
  readonly #entries: FollowedEntry[] = [];
  #characters = 0;
  readonly #live = new ReceivedMessages();
  readonly #readers = new Map<StreamSequencer, Send>();
  readonly #budget: FeedBudget;
  #isDone = false;
  #isClosed = false;

  /** @param budget shared by all feeds of a process */
  constructor(budget = new FeedBudget()) {
    this.#budget = budget;
  }

  /** Where the entries that will come begin: the run of the turn that is read first. Only before the first of them. */
  beginAt(ordinal: number): void {
    if (this.#entries.length > 0) throw new Error('the feed has begun already');
    this.#firstOrdinal = ordinal;
    this.#live.beginAfter(ordinal - 1);
  }

  /** The first entry that is still kept has this ordinal. */
  get firstOrdinal(): number {
    return this.#firstOrdinal;
  }

  /** The ordinal of the last entry; `firstOrdinal - 1` if there is none yet. */
  get lastOrdinal(): number {
    return this.#firstOrdinal - 1 + this.#entries.length;
  }

  /** True once the turn's last entry has come. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** Up to `limit` entries from `ordinal` on. */
  entries(ordinal: number, limit = Infinity): FollowedEntry[] {
    const from = ordinal - this.#firstOrdinal;
    return this.#entries.slice(from, from + limit);
  }

  /**
   * Adds a reader and sends it what it lacks.
   * @throws RangeError if it lacks entries from before `firstOrdinal`, or has some that are not here yet.
   */
  join(reader: StreamSequencer, send: Send): void {
    if (reader.ordinal < this.#firstOrdinal - 1 || reader.ordinal > this.lastOrdinal) {
      throw new RangeError(`a reader at ${reader.ordinal} can't join at ${this.#firstOrdinal} to ${this.lastOrdinal}`);
    }
    const frames = this.entries(reader.ordinal + 1).flatMap((entry) => reader.durable(entry));
    frames.push(...this.inProgress(reader));
    this.#readers.set(reader, send);
    this.#use();
    if (frames.length > 0) send(frames);
  }

  /** What a reader lacks of the messages in progress. */
  inProgress(reader: StreamSequencer): NumberedFrame[] {
    return [...this.#live.all].flatMap((message) => reader.live(message));
  }

  leave(reader: StreamSequencer): void {
    this.#readers.delete(reader);
  }

  /** @throws Error if it is not the entry behind the last one: a log has no gaps. */
  entry(entry: LogEntry): void {
    const { ordinal, record } = entry;
    if (ordinal !== this.lastOrdinal + 1) throw new Error(`entry ${ordinal} after ${this.lastOrdinal}`);
    const followed = this.#settle(entry);
    this.#entries.push(followed);
    this.#characters += sizeOf(record);
    this.#isDone = record.kind === 'turn.done';
    this.#each((reader) => [...reader.durable(followed), ...this.inProgress(reader)]);
    // The older half, seldom enough that it costs nothing.
    if (this.#entries.length > MAX_ENTRIES || this.#characters > MAX_CHARACTERS) {
      this.#forget(Math.ceil(this.#entries.length / 2));
    }
    this.#use();
  }

  #settle(entry: LogEntry): FollowedEntry {
    const { record, ordinal } = entry;
    if (record.kind !== 'model.message') return entry;
    const live = this.#live.get(record.id);
    this.#live.settle(record, ordinal);
    return live && diffMessage(live.text, record) ? { ...entry, liveAttempt: live.attempt } : entry;
  }

  /** Forgets all entries: who lacks them reads them from the log. Gives what is kept all the same. */
  trim(): number {
    this.#forget(this.#entries.length);
    return this.#live.characters;
  }

  /** Nobody reads it any more, and nothing more is to come. */
  close(): void {
    this.#isClosed = true;
    this.#budget.forget(this);
  }

  #forget(count: number): void {
    for (const { record } of this.#entries.splice(0, count)) this.#characters -= sizeOf(record);
    this.#firstOrdinal += count;
  }

  #use(): void {
    if (this.#isClosed) return;
    if (!this.#budget.use(this, this.#characters + this.#live.characters)) this.#live.freeze();
  }

  /** False if frames are missing: a snapshot would help. */
  frame(frame: LiveFrame): boolean {
    return this.#changed(this.#live.frame(frame));
  }

  snapshot(snapshot: LiveSnapshot): void {
    this.#changed(this.#live.snapshot(snapshot));
  }

  #changed(change: LiveChange): boolean {
    if (change.type === 'grown') {
      this.#each((reader) => reader.live(change.message, change.delta));
      this.#use();
    }
    return change.type !== 'gap';
  }

  #each(next: (reader: StreamSequencer) => NumberedFrame[]): void {
    for (const [reader, send] of this.#readers) {
      const frames = next(reader);
      if (frames.length > 0) send(frames);
    }
  }
}

/** About how many characters a record takes; texts are what makes one large. */
function sizeOf(record: LogRecord): number {
  if (record.kind === 'model.message') return charactersOf(record) + 500;
  return record.kind === 'tool.response' || record.kind === 'turn.created' ? JSON.stringify(record).length : 500;
}
