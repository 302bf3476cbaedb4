import type { LogEntry } from '../log/records.ts';
import type { LiveFrame, LiveSnapshot } from './bus.ts';
import { LiveMessages, type LiveChange } from './live-messages.ts';
import type { StreamFrame, TurnReader } from './turn-reader.ts';

export type Send = (frames: StreamFrame[]) => void;

/** Entries that are kept for readers to come; what is older they read from the log. */
const MAX_ENTRIES = 4_000;

/**
 * What this process knows of one turn, and its readers: the entries of the log since `firstOrdinal` and the messages in
 * progress come in, each reader's stream goes out. No I/O: `turn-tail.ts` feeds it.
 */
export class TurnFeed {
  #firstOrdinal: number;
  readonly #entries: LogEntry[] = [];
  readonly #live = new LiveMessages();
  readonly #readers = new Map<TurnReader, Send>();

  constructor(firstOrdinal = 1) {
    this.#firstOrdinal = firstOrdinal;
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

  entry(entry: LogEntry): void {
    this.#entries.push(entry);
    const message = entry.record.kind === 'model.message' ? this.#live.get(entry.record.id) : undefined;
    if (entry.record.kind === 'model.message') this.#live.settle(entry.record.id);
    this.#each((reader) => {
      const frames = reader.durable(entry, message);
      for (const next of this.#live.all) frames.push(...reader.live(next));
      return frames;
    });
    if (this.#entries.length > MAX_ENTRIES) {
      this.#entries.splice(0, MAX_ENTRIES / 2);
      this.#firstOrdinal += MAX_ENTRIES / 2;
    }
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
