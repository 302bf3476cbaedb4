import type { LogEntry } from '../log/records.ts';
import type { LiveFrame, LiveSnapshot } from './bus.ts';
import { LiveMessages, type LiveChange } from './live-messages.ts';
import type { StreamFrame, TurnReader } from './turn-reader.ts';

export type Send = (frames: StreamFrame[]) => void;

/** What is kept for readers to come, in entries and about characters; what is older they read from the log. */
const MAX_ENTRIES = 4_000;
const MAX_CHARACTERS = 16 * 1024 * 1024;

/**
 * What this process knows of one turn, and its readers: the entries of the log since `firstOrdinal` and the messages in
 * progress come in, each reader's stream goes out. No I/O: `turn-tail.ts` feeds it.
 */
export class TurnFeed {
  #firstOrdinal = 1;
  readonly #entries: LogEntry[] = [];
  #characters = 0;
  readonly #live = new LiveMessages();
  readonly #readers = new Map<TurnReader, Send>();

  /** Where the entries that will come begin. Only before the first of them. */
  beginAt(ordinal: number): void {
    if (this.#entries.length > 0) throw new Error('the feed has begun already');
    this.#firstOrdinal = ordinal;
  }

  /** The first entry that is still kept has this ordinal. */
  get firstOrdinal(): number {
    return this.#firstOrdinal;
  }

  /** The ordinal of the last entry; `firstOrdinal - 1` if there is none yet. */
  get lastOrdinal(): number {
    return this.#firstOrdinal - 1 + this.#entries.length;
  }

  /** Up to `limit` entries from `ordinal` on. */
  entries(ordinal: number, limit = Infinity): LogEntry[] {
    const from = ordinal - this.#firstOrdinal;
    return this.#entries.slice(from, from + limit);
  }

  /**
   * Adds a reader and sends it what it lacks.
   * @throws RangeError if it lacks entries from before `firstOrdinal`, or has some that are not here yet.
   */
  join(reader: TurnReader, send: Send): void {
    if (reader.ordinal < this.#firstOrdinal - 1 || reader.ordinal > this.lastOrdinal) {
      throw new RangeError(`a reader at ${reader.ordinal} can't join at ${this.#firstOrdinal} to ${this.lastOrdinal}`);
    }
    const frames = this.entries(reader.ordinal + 1).flatMap((entry) => reader.durable(entry));
    for (const message of this.#live.all) frames.push(...reader.live(message));
    this.#readers.set(reader, send);
    if (frames.length > 0) send(frames);
  }

  leave(reader: TurnReader): void {
    this.#readers.delete(reader);
  }

  /** @throws Error if it is not the entry behind the last one: a log has no gaps. */
  entry(entry: LogEntry): void {
    if (entry.ordinal !== this.lastOrdinal + 1) throw new Error(`entry ${entry.ordinal} after ${this.lastOrdinal}`);
    this.#entries.push(entry);
    this.#characters += charactersOf(entry);
    const message = entry.record.kind === 'model.message' ? this.#live.get(entry.record.id) : undefined;
    if (entry.record.kind === 'model.message') this.#live.settle(entry.record.id);
    this.#each((reader) => {
      const frames = reader.durable(entry, message);
      for (const next of this.#live.all) frames.push(...reader.live(next));
      return frames;
    });
    if (this.#entries.length > MAX_ENTRIES || this.#characters > MAX_CHARACTERS) this.#trim();
  }

  /** Forgets the older half, seldom enough that it costs nothing. */
  #trim(): void {
    const count = Math.ceil(this.#entries.length / 2);
    for (const entry of this.#entries.splice(0, count)) this.#characters -= charactersOf(entry);
    this.#firstOrdinal += count;
  }

  /** False if frames are missing: a snapshot would help. */
  frame(frame: LiveFrame): boolean {
    return this.#changed(this.#live.frame(frame));
  }

  snapshot(snapshot: LiveSnapshot): void {
    this.#changed(this.#live.snapshot(snapshot));
  }

  #changed(change: LiveChange): boolean {
    if (change.type === 'grown') this.#each((reader) => reader.live(change.message, change.delta));
    return change.type !== 'gap';
  }

  #each(next: (reader: TurnReader) => StreamFrame[]): void {
    for (const [reader, send] of this.#readers) {
      const frames = next(reader);
      if (frames.length > 0) send(frames);
    }
  }
}

/** About what an entry takes; texts are what makes one large. */
function charactersOf({ record }: LogEntry): number {
  if (record.kind === 'model.message') {
    const calls = record.toolCalls.reduce((sum, call) => sum + call.arguments.length + 500, 0);
    return record.content.length + record.reasoning.length + calls + 500;
  }
  return record.kind === 'tool.response' || record.kind === 'turn.created' ? JSON.stringify(record).length : 500;
}
