import type { Reader } from '../../auth/rights.ts';
import { FIRST_PIECE, FRAMES_PER_ORDINAL, sequenceNumber, type Cursor } from '../../core/cursor.ts';
import { wholeDelta, type MessageDelta } from '../../core/message.ts';
import type { LogRecord } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import type { NumberedFrame } from '../../live/stream-sequencer.ts';
import { MessagePartials, endDeltas, type IndexedDelta } from './message-partials.ts';
import { RunOutput, type RunLimits } from './run-output.ts';
import type { RunHeader, RunItem, RunStreamEvent } from './wire/run.ts';

/**
 * The frame of the first partial after a durable event. Lower frames number the items of the event's record, always in
 * the same way: at most the results of all calls of a message. Connections count the partials up to `FIRST_PIECE`; the
 * frames after it number the items that only the end of the run completes, so that the end itself has the number of its
 * record.
 */
const FIRST_PARTIAL = 100_000;

export interface RunEventsOptions {
  run: RunHeader;
  reader: Reader;
  limits: RunLimits;
  /** What the client has: nothing up to here is sent again. */
  cursor: Cursor;
}

/**
 * The events of one connection to a run: a projection of the frames of its turn, from the first one on, since the index
 * of an item counts the items before it. Only frames after the cursor give events. The number of an item and of the end
 * is the same on every connection, so a cursor determines which of them its client has.
 */
export class RunEvents {
  readonly #options: RunEventsOptions;
  readonly #output: RunOutput;
  /** The message of which this connection has sent partials. */
  #message: MessagePartials | undefined;
  /** The client has partials of the next item. */
  #hasPartials: boolean;
  /** The next partial is the first of a message that starts over. */
  #mustReset = false;
  /** The number of the last partial. */
  #last: Cursor;
  /** The number of the run's pause, if it is paused. */
  #pause: Cursor = { ordinal: 0, frame: 0 };

  constructor(options: RunEventsOptions) {
    const { limits, cursor } = options;
    this.#options = options;
    this.#output = new RunOutput(limits);
    this.#hasPartials = cursor.frame >= FIRST_PARTIAL && cursor.frame < FIRST_PIECE;
    this.#last = cursor;
  }

  /** Whether the run waits for its client. */
  get isPaused(): boolean {
    return this.#output.status === 'requires_action';
  }

  /**
   * The events of frames that are sent together, each made when it is sent. A message that is complete before the
   * connection has sent any of it gives only its item.
   */
  *events(frames: NumberedFrame[]): Generator<RunStreamEvent> {
    const ended = new Set(frames.flatMap(({ frame }) => (frame.kind === 'end' ? [frame.message.id] : [])));
    for (const numbered of frames) {
      const { frame } = numbered;
      const isText = frame.kind === 'begin' || frame.kind === 'delta';
      if (!isText || !ended.has(frame.message.id) || this.#message?.id === frame.message.id)
        yield* this.#frame(numbered);
    }
  }

  #frame({ sequenceNumber: number, frame }: NumberedFrame): RunStreamEvent[] {
    const ordinal = Math.floor(number / FRAMES_PER_ORDINAL);
    switch (frame.kind) {
      case 'begin': {
        const { message, text } = frame;
        if (message.threadId !== ROOT_THREAD) return [];
        this.#message = new MessagePartials(message.id);
        this.#mustReset = this.#hasPartials;
        return this.#grow(wholeDelta(text), ordinal);
      }
      case 'delta':
        return frame.message.threadId === ROOT_THREAD ? this.#grow(frame.delta, ordinal) : [];
      case 'end':
        return this.#complete(frame.message, ordinal);
      case 'queued':
      case 'output':
      case 'retrying':
        return [];
      case 'record':
        return frame.record.kind === 'model.message'
          ? this.#complete(frame.record, ordinal)
          : this.#record(frame.record, ordinal);
    }
  }

  /** The end of a stream whose run is paused; undefined if it is not, or if the client has this event. */
  pause(): RunStreamEvent | undefined {
    return this.isPaused ? this.#after(this.#pause, (number) => this.#response(number)) : undefined;
  }

  #grow(delta: MessageDelta, ordinal: number): RunStreamEvent[] {
    if (!this.#message) return [];
    const { deltas, isReset } = this.#message.add(delta);
    this.#mustReset ||= isReset;
    return this.#partials(deltas, { ordinal, index: this.#output.items.length });
  }

  /** @param index that of the item */
  #partials(deltas: IndexedDelta[], { ordinal, index }: { ordinal: number; index: number }): RunStreamEvent[] {
    const events: RunStreamEvent[] = [];
    for (const delta of deltas) {
      const number = this.#nextPartial(ordinal);
      // The client gets the rest with the item.
      if (number === undefined) break;
      events.push({
        event: 'partial',
        item_index: index,
        ...(this.#mustReset && { reset: true }),
        delta,
        sequence_number: number,
      });
      this.#mustReset = false;
      this.#hasPartials = true;
    }
    return events;
  }

  #nextPartial(ordinal: number): number | undefined {
    const { ordinal: known, frame } = this.#last;
    const next = ordinal === known ? Math.max(frame + 1, FIRST_PARTIAL) : FIRST_PARTIAL;
    if (next >= FIRST_PIECE) return undefined;
    this.#last = { ordinal, frame: next };
    return sequenceNumber(this.#last);
  }

  #complete(message: ModelMessage, ordinal: number): RunStreamEvent[] {
    const index = this.#output.items.length;
    const [item] = this.#output.feed(message);
    if (message.threadId !== ROOT_THREAD || message.isGiven || ordinal <= this.#options.cursor.ordinal) {
      return item ? this.#items([item], { ordinal, frame: 1 }) : [];
    }
    // Audio and images have no partials before their end.
    const isSpoken = item?.type === 'model' && item.content.every(({ type }) => type === 'audio' || type === 'image');
    const isShown = isSpoken
      ? !this.#hasPartials
      : this.#message?.id === message.id && this.#hasPartials && !this.#mustReset;
    const hadPartials = this.#hasPartials;
    this.#message = undefined;
    const first = sequenceNumber({ ordinal, frame: 0 });
    const partial = { event: 'partial' as const, item_index: index, sequence_number: first };
    if (item?.type !== 'model') {
      this.#hasPartials = false;
      return hadPartials ? [{ ...partial, reset: true }] : [];
    }
    const { usage, cost } = item;
    const ends = isShown ? this.#partials(endDeltas(item.content), { ordinal: ordinal - 1, index }) : [];
    this.#hasPartials = false;
    return [
      ...ends,
      ...(isShown && usage ? [{ ...partial, usage, ...(cost !== undefined && { cost }) }] : []),
      ...this.#items([item], { ordinal, frame: 1 }),
    ];
  }

  #record(record: LogRecord, ordinal: number): RunStreamEvent[] {
    const items = this.#output.feed(record);
    if (record.kind === 'turn.done') {
      const closed = this.#items(items, { ordinal: ordinal - 1, frame: FIRST_PIECE });
      const end = this.#after({ ordinal, frame: 0 }, (number) => this.#end(number));
      return end ? [...closed, end] : closed;
    }
    // What the run waits for may have changed.
    if (/^tool(kit)?\./.test(record.kind) || record.kind === 'turn.paused') {
      this.#pause = { ordinal, frame: items.length };
    }
    return this.#items(items, { ordinal, frame: 0 });
  }

  /** The last items of the output, numbered from `first` on. */
  #items(items: RunItem[], { ordinal, frame }: Cursor): RunStreamEvent[] {
    const before = this.#output.items.length - items.length;
    return items.flatMap((item, i) => {
      const event = this.#after({ ordinal, frame: frame + i }, (number) => ({
        event: 'item' as const,
        index: before + i,
        item,
        sequence_number: number,
      }));
      return event ?? [];
    });
  }

  #end(number: number): RunStreamEvent {
    const { error } = this.#output;
    if (!error) return this.#response(number);
    return { event: 'error', error, output: [...this.#output.items], status: 'failed', sequence_number: number };
  }

  #response(number: number): RunStreamEvent {
    const { run, reader } = this.#options;
    return { event: 'response', ...this.#output.run(run, reader), sequence_number: number };
  }

  /** Undefined if the client has the event with this number. */
  #after<E extends RunStreamEvent>(position: Cursor, event: (number: number) => E): E | undefined {
    const number = sequenceNumber(position);
    return number > sequenceNumber(this.#options.cursor) ? event(number) : undefined;
  }
}
