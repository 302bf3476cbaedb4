import type { RetryNotice } from '../core/attempts.ts';
import { isBeginningOf } from '../core/message.ts';
import type { LogEntry } from '../core/records/log.ts';
import { textOf } from '../core/sections.ts';
import type { LiveFrame, LiveOutput, LiveSnapshot } from './bus.ts';
import { FeedBudget } from './feed-budget.ts';
import { LiveOutputs } from './live-outputs.ts';
import { ReceivedMessages, type LiveChange } from './received-messages.ts';
import type { FollowedEntry, NumberedFrame, StreamSequencer } from './stream-sequencer.ts';

type Send = (frames: NumberedFrame[]) => void;

/** What is kept for later readers, in entries and approximate characters; older entries are read from the log. */
const MAX_ENTRIES = 4_000;
const MAX_CHARACTERS = 16 * 1024 * 1024;

/**
 * Merges the log of one turn with its messages in progress for all readers of this process: its input is the entries
 * from `firstOrdinal` on and the frames of the bus, its output the stream of each reader. No I/O: `turn-tail.ts` feeds it.
 */
export class TurnFeed {
  #firstOrdinal = 1;
  readonly #entries: FollowedEntry[] = [];
  #characters = 0;
  readonly #live = new ReceivedMessages();
  readonly #outputs = new LiveOutputs();
  /** The ids of the results of the calls that ran in the sandbox: late pieces of their outputs are ignored. */
  readonly #results = new Set<string>();
  readonly #readers = new Map<StreamSequencer, Send>();
  readonly #budget: FeedBudget;
  #isDone = false;
  #isClosed = false;

  /** @param budget shared by all feeds of a process */
  constructor(budget = new FeedBudget()) {
    this.#budget = budget;
  }

  /** Sets the ordinal of the first entry, with which the first run that is read starts. Only before any entry. */
  startAt(ordinal: number): void {
    if (this.#entries.length > 0) throw new Error('the feed has entries already');
    this.#firstOrdinal = ordinal;
    this.#live.startAfter(ordinal - 1);
  }

  /** The ordinal of the first entry that is still kept. */
  get firstOrdinal(): number {
    return this.#firstOrdinal;
  }

  /** The ordinal of the last entry; `firstOrdinal - 1` if there is none yet. */
  get lastOrdinal(): number {
    return this.#firstOrdinal - 1 + this.#entries.length;
  }

  /** True once the turn's last entry has been added. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** Up to `limit` entries from `ordinal` on. */
  entries(ordinal: number, limit = Infinity): FollowedEntry[] {
    const from = ordinal - this.#firstOrdinal;
    return this.#entries.slice(from, from + limit);
  }

  /**
   * Adds a reader and sends it the frames that it lacks.
   * @throws RangeError if it lacks entries from before `firstOrdinal`, or its cursor is beyond `lastOrdinal`.
   */
  join(reader: StreamSequencer, send: Send): void {
    if (reader.ordinal < this.#firstOrdinal - 1 || reader.ordinal > this.lastOrdinal) {
      throw new RangeError(`a reader at ${reader.ordinal} cannot join at ${this.#firstOrdinal} to ${this.lastOrdinal}`);
    }
    const frames = this.entries(reader.ordinal + 1).flatMap((entry) => reader.durable(entry));
    frames.push(...this.inProgress(reader));
    this.#readers.set(reader, send);
    this.#use();
    if (frames.length > 0) send(frames);
  }

  /** The frames of messages and outputs in progress that a reader lacks. */
  inProgress(reader: StreamSequencer): NumberedFrame[] {
    return [
      ...[...this.#live.all].flatMap((message) => reader.live(message)),
      ...[...this.#outputs.all].flatMap((output) => reader.output(output)),
    ];
  }

  leave(reader: StreamSequencer): void {
    this.#readers.delete(reader);
  }

  /**
   * Adds an entry and sends it to all readers.
   * @throws Error if it does not follow the last one: a log has no gaps.
   */
  entry(entry: LogEntry): void {
    const { ordinal, record } = entry;
    if (ordinal !== this.lastOrdinal + 1) throw new Error(`entry ${ordinal} after ${this.lastOrdinal}`);
    const followed = this.#settle(entry);
    this.#entries.push(followed);
    this.#characters += sizeOf(record);
    this.#isDone = record.kind === 'turn.done';
    this.#each((reader) => [...reader.durable(followed), ...this.inProgress(reader)]);
    // The older half at once, so that the cost per entry is negligible.
    if (this.#entries.length > MAX_ENTRIES || this.#characters > MAX_CHARACTERS) {
      this.#drop(Math.ceil(this.#entries.length / 2));
    }
    this.#use();
  }

  #settle(entry: LogEntry): FollowedEntry {
    const { record, ordinal } = entry;
    if (record.kind === 'turn.done') this.#outputs.close();
    if (record.kind === 'tool.response') {
      const hadOutput = this.#outputs.delete(record.id);
      if (hadOutput || record.execution) this.#results.add(record.id);
    }
    if (record.kind !== 'model.message') return entry;
    const live = this.#live.get(record.id);
    this.#live.settle(record, ordinal);
    return live && isBeginningOf(live.text, textOf(record)) ? { ...entry, liveAttempt: live.attempt } : entry;
  }

  /** Drops all entries: readers that lack them read the log. Returns the characters that are still kept. */
  trim(): number {
    this.#drop(this.#entries.length);
    return this.#live.characters + this.#outputs.characters;
  }

  /** Releases the budget: the feed has no readers and gets no more input. */
  close(): void {
    this.#isClosed = true;
    this.#budget.forget(this);
  }

  #drop(count: number): void {
    for (const { record } of this.#entries.splice(0, count)) this.#characters -= sizeOf(record);
    this.#firstOrdinal += count;
  }

  #use(): void {
    if (this.#isClosed) return;
    const live = this.#live.characters + this.#outputs.characters;
    if (this.#budget.use(this, this.#characters + live)) return;
    this.#live.freeze();
    this.#outputs.close();
  }

  /** False if earlier frames are missing, which a snapshot would supply. */
  frame(frame: LiveFrame): boolean {
    return this.#changed(this.#live.frame(frame));
  }

  snapshot(snapshot: LiveSnapshot): void {
    this.#changed(this.#live.snapshot(snapshot));
  }

  /** False if a piece before it is missing, which the whole output would supply. */
  output(output: LiveOutput): boolean {
    if (this.#results.has(output.id)) return true;
    const change = this.#outputs.add(output);
    if (change === 'grown') {
      this.#each((reader) => this.inProgress(reader));
      this.#use();
    }
    return change !== 'gap';
  }

  /** Notifies the present readers that the turn repeats a call. Later readers find it in the state of the turn. */
  retrying(notice: RetryNotice): void {
    this.#each((reader) => reader.transient({ kind: 'retrying', notice }));
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

/** What a value takes beside its text, in characters. */
const VALUE_CHARACTERS = 40;

/** Approximate length of a record in characters, whatever its kind: the texts in it are measured, not copied. */
function sizeOf(value: unknown): number {
  if (typeof value === 'string') return VALUE_CHARACTERS + value.length;
  if (typeof value !== 'object' || value === null) return VALUE_CHARACTERS;
  let size = VALUE_CHARACTERS;
  for (const one of Object.values(value)) size += sizeOf(one);
  return size;
}
