import { BEGINNING, FIRST_PIECE, sequenceNumber, type Cursor } from '../core/cursor.ts';
import {
  applyDelta,
  emptyText,
  gainedSince,
  lengthsOf,
  splitDelta,
  textDeltas,
  type MessageDelta,
  type MessageText,
  type TextLengths,
} from '../core/message.ts';
import type { LogEntry, ModelMessage } from '../core/records.ts';
import type { StreamEvent } from '../api/sessions/wire/events.ts';
import { deltaToWire, messageBase, messageEnd, toWire } from '../api/sessions/wire/to-wire.ts';
import type { LiveMessage } from './received-messages.ts';

/** One SSE event, numbered for one connection. */
export interface StreamFrame {
  sequenceNumber: number;
  event: StreamEvent;
}

/** An entry as a process that has followed its turn knows it. */
export interface FollowedEntry extends LogEntry {
  /** The attempt whose live text the message continues, if this process has heard that. */
  liveAttempt?: number;
}

/**
 * Replay uses as few deltas as fit in this many bytes each. It decides the pieces of a durable message, which cursors
 * name (`FIRST_PIECE`): with another value, or cut differently, a reader that was cut in a longer message would continue
 * at the wrong place.
 */
const MAX_DELTA_BYTES = 512 * 1024;

/** How much of which attempt at a message a connection has been sent. */
interface Sent {
  attempt: number;
  frames: number;
  lengths: TextLengths;
}

/**
 * What one connection has been sent of a turn, and what it is sent next. Fed with the turn's entries from its cursor
 * on, and with every change of the messages in progress, it makes a stream whose fold equals the log's, wherever the
 * connection was cut before.
 *
 * A message whose live deltas went out on this connection is finished by what is missing of it and a last delta. In
 * every other case its base is sent again, which replaces what the client holds, and the text with it.
 *
 * A reader that was cut in a message (its cursor is not a durable event's) gets as much as possible in the first event:
 * the message so far as the base, or, once it is durable, the whole message under the ordinal's number. So a reader that
 * gets one event per connection gets past every message. A durable message that is too long for one event comes in
 * numbered pieces; one in progress comes up to that length in the base, and the rest in deltas.
 */
export class StreamSequencer {
  #ordinal: number;
  #frame: number;
  /** The connection before this one was cut since the last durable event. */
  #isCut: boolean;
  /** By the ids of the messages in progress. */
  readonly #sent = new Map<string, Sent>();

  constructor(cursor: Cursor = BEGINNING) {
    this.#ordinal = cursor.ordinal;
    this.#frame = cursor.frame;
    this.#isCut = cursor.frame > 0;
  }

  /** The last durable event that the connection has. */
  get ordinal(): number {
    return this.#ordinal;
  }

  /**
   * The next durable event.
   * @throws Error if an entry was left out: entries come one by one.
   */
  durable({ ordinal, record, liveAttempt }: FollowedEntry): StreamFrame[] {
    if (ordinal !== this.#ordinal + 1) throw new Error(`entry ${ordinal} can't follow ${this.#ordinal}`);
    const { before, last } =
      record.kind === 'model.message' ? this.#finish(record, liveAttempt) : { before: [], last: toWire(record) };
    this.#ordinal = ordinal;
    this.#frame = 0;
    this.#isCut = false;
    return [...before, { sequenceNumber: sequenceNumber({ ordinal, frame: 0 }), event: last }];
  }

  /**
   * A message in progress has grown by `delta`, or may have something that this connection lacks. Nothing is sent
   * before the durable events that the message answers, so a stream has the order of the log.
   */
  live(message: LiveMessage, delta?: MessageDelta): StreamFrame[] {
    if (message.after > this.#ordinal) return [];
    const sent = this.#sent.get(message.id);
    const isSame = sent?.attempt === message.attempt;
    if (isSame && sent.frames === message.frames) return [];
    const events = isSame
      ? this.#deltas(message, missing(message, sent, delta))
      : this.#begin(message, textDeltas(message.text, MAX_DELTA_BYTES));
    // Of a message that begins, nothing may be known yet: an empty base would take from the client what it holds.
    if (message.frames === 0 || events.length === 0 || !this.#hasNumbersFor(events.length)) return [];
    const { attempt, frames, text } = message;
    this.#sent.set(message.id, { attempt, frames, lengths: lengthsOf(text) });
    return this.#number(events);
  }

  /** The rest of a message: `last` takes the ordinal's number. */
  #finish(record: ModelMessage, liveAttempt: number | undefined): { before: StreamFrame[]; last: StreamEvent } {
    const sent = this.#sent.get(record.id);
    this.#sent.delete(record.id);
    const last: StreamEvent = {
      type: 'model.message.delta',
      id: record.id,
      thread_id: record.threadId,
      ...messageEnd(record),
    };
    if (sent && sent.attempt === liveAttempt) {
      const rest = this.#deltas(record, splitDelta(gainedSince(record, sent.lengths), MAX_DELTA_BYTES));
      if (this.#hasNumbersFor(rest.length)) return { before: this.#number(rest), last };
    }
    const pieces = textDeltas(record, MAX_DELTA_BYTES);
    if (!this.#isCut && this.#hasNumbersFor(pieces.length + 1)) {
      return { before: this.#number(this.#begin(record, pieces)), last };
    }
    if (pieces.length <= 1) return { before: [], last: toWire(record) };
    this.#isCut = true;
    const known = Math.max(0, this.#frame - FIRST_PIECE + 1);
    const events = this.#begin(record, pieces).slice(known <= pieces.length ? known : 0);
    this.#frame = Math.max(this.#frame, FIRST_PIECE - 1);
    return { before: this.#number(events), last };
  }

  /** The beginning of a message of which there is something already. */
  #begin(message: { id: string; at: string; threadId: string }, pieces: MessageDelta[]): StreamEvent[] {
    const [first, ...rest] = pieces;
    if (!first) return [messageBase(message)];
    return this.#isCut
      ? [messageBase(message, folded(first)), ...this.#deltas(message, rest)]
      : [messageBase(message), ...this.#deltas(message, pieces)];
  }

  #deltas(message: { id: string; threadId: string }, deltas: MessageDelta[]): StreamEvent[] {
    return deltas.map((delta) => deltaToWire(message, delta));
  }

  #hasNumbersFor(count: number): boolean {
    return this.#frame + count < FIRST_PIECE;
  }

  #number(events: StreamEvent[]): StreamFrame[] {
    return events.map((event) => {
      this.#frame += 1;
      return { sequenceNumber: sequenceNumber({ ordinal: this.#ordinal, frame: this.#frame }), event };
    });
  }
}

/** What a connection lacks of a message that has grown by `delta`, if nothing came between. */
function missing(message: LiveMessage, sent: Sent, delta: MessageDelta | undefined): MessageDelta[] {
  if (delta && sent.frames === message.frames - 1) return [delta];
  return splitDelta(gainedSince(message.text, sent.lengths), MAX_DELTA_BYTES);
}

function folded(delta: MessageDelta): MessageText {
  const text = emptyText();
  applyDelta(text, delta);
  return text;
}
