import { BEGINNING, FRAMES_PER_ORDINAL, MAX_LIVE_FRAME, sequenceNumber, type Cursor } from '../log/ordinals.ts';
import { missingFrom, splitDelta, textDeltas, type MessageDelta } from '../log/message.ts';
import type { LogEntry, ModelMessage } from '../log/records.ts';
import type { StreamEvent } from '../wire/events.ts';
import { deltaToWire, messageBase, messageEnd, toWire } from '../wire/project.ts';
import type { LiveMessage } from './live-messages.ts';

/** One SSE event, numbered for one connection. */
export interface StreamFrame {
  sequenceNumber: number;
  event: StreamEvent;
}

/** Replay uses as few deltas as fit in this many bytes each. */
const MAX_DELTA_BYTES = 512 * 1024;

/**
 * What one connection has been sent of a turn, and what it is sent next. Fed with the turn's entries from its cursor
 * on, and with every change of the messages in progress, it makes a stream whose fold equals the log's, wherever the
 * connection was cut before.
 *
 * A message whose live deltas went out on this connection is finished by what is missing of it and a last delta. In
 * every other case its base is sent again, which replaces what the client holds, and the text with it.
 */
export class TurnReader {
  #ordinal: number;
  #frame: number;
  /** For each message in progress, how much of which attempt this connection has been sent. */
  readonly #sent = new Map<string, { attempt: number; frames: number }>();

  constructor(cursor: Cursor = BEGINNING) {
    this.#ordinal = cursor.ordinal;
    this.#frame = cursor.frame;
  }

  /** The last durable event that the connection has. */
  get ordinal(): number {
    return this.#ordinal;
  }

  /**
   * The next durable event. `live` is the message in progress that it ends, if this process has seen it.
   * @throws Error if an entry was left out: entries come one by one.
   */
  durable({ ordinal, record }: LogEntry, live?: LiveMessage): StreamFrame[] {
    if (ordinal !== this.#ordinal + 1) throw new Error(`entry ${ordinal} can't follow ${this.#ordinal}`);
    const before = record.kind === 'model.message' ? this.#textOf(record, live) : [];
    const event: StreamEvent =
      record.kind === 'model.message'
        ? { type: 'model.message.delta', id: record.id, thread_id: record.threadId, ...messageEnd(record) }
        : toWire(record);
    this.#ordinal = ordinal;
    this.#frame = 0;
    return [...before, { sequenceNumber: sequenceNumber({ ordinal, frame: 0 }), event }];
  }

  /**
   * A message in progress has grown by `delta`, or may have something that this connection lacks. Nothing is sent
   * before the durable events that the message answers, so a stream has the order of the log.
   */
  live(message: LiveMessage, delta?: MessageDelta): StreamFrame[] {
    if (message.after > this.#ordinal) return [];
    if (this.#frame >= MAX_LIVE_FRAME) return [];
    const sent = this.#sent.get(message.id);
    const upToDate = sent?.attempt === message.attempt;
    if (upToDate && sent.frames === message.frames) return [];
    this.#sent.set(message.id, { attempt: message.attempt, frames: message.frames });
    if (upToDate && delta && sent.frames === message.frames - 1) return [this.#number(deltaToWire(message, delta))];
    return this.#begin(message, textDeltas(message.text, MAX_DELTA_BYTES));
  }

  #textOf(record: ModelMessage, live: LiveMessage | undefined): StreamFrame[] {
    const sent = this.#sent.get(record.id);
    this.#sent.delete(record.id);
    const holds = live && sent?.attempt === live.attempt && sent.frames === live.frames ? live.text : undefined;
    const missing = holds && missingFrom(holds, record);
    if (!missing) return this.#begin(record, textDeltas(record, MAX_DELTA_BYTES));
    return this.#deltas(record, splitDelta(missing, MAX_DELTA_BYTES));
  }

  #begin(message: { id: string; at: string; threadId: string }, deltas: MessageDelta[]): StreamFrame[] {
    return [this.#number(messageBase(message)), ...this.#deltas(message, deltas)];
  }

  #deltas(message: { id: string; threadId: string }, deltas: MessageDelta[]): StreamFrame[] {
    return deltas.map((delta) => this.#number(deltaToWire(message, delta)));
  }

  #number(event: StreamEvent): StreamFrame {
    this.#frame += 1;
    if (this.#frame >= FRAMES_PER_ORDINAL) throw new Error('a connection has used up the numbers of an ordinal');
    return { sequenceNumber: sequenceNumber({ ordinal: this.#ordinal, frame: this.#frame }), event };
  }
}
