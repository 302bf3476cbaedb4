import { isDeepStrictEqual } from 'node:util';
import type { RetryNotice } from '../core/attempts.ts';
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
import { textOf } from '../core/sections.ts';
import type { LogEntry, LogRecord } from '../core/records/log.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { McpInitialized } from '../core/records/servers.ts';
import type { TurnCreated } from '../core/records/turn.ts';
import { partsAfter, type OutputPart } from '../core/output-parts.ts';
import { cutPoint } from '../core/text.ts';
import type { OutputSoFar } from './live-outputs.ts';
import type { LiveMessage } from './received-messages.ts';

/** The fields of a message that are known before its text. */
type MessageHeader = Pick<ModelMessage, 'id' | 'at' | 'threadId'>;

type OutputHeader = Pick<OutputSoFar, 'id' | 'threadId' | 'toolCallId' | 'attempt'>;

/**
 * One step of a turn's stream, in terms of the log: each HTTP face maps frames to its own events.
 *
 * A client folds them by id: `record` and `begin` replace what it has, `delta` and `end` extend it.
 */
export type TurnFrame =
  /** Opens a message with the text so far, which may be empty. */
  | { kind: 'begin'; message: MessageHeader; text: MessageText }
  | { kind: 'delta'; message: MessageHeader; delta: MessageDelta }
  /** Completes a message whose text was sent by `begin` and `delta`: the client lacks its other fields. */
  | { kind: 'end'; message: ModelMessage }
  /** The creation of a turn that waits in the queue of its session: its first record replaces it. */
  | { kind: 'queued'; created: TurnCreated }
  /**
   * A part of what a call in the sandbox has written. The result of the call replaces all of them; with `isReset`, this one
   * replaces those before.
   */
  | { kind: 'output'; output: OutputHeader; part: OutputPart; isReset?: true }
  /** The turn repeats a call. Clients keep nothing of it. */
  | { kind: 'retrying'; notice: RetryNotice }
  /** A whole record, also a message that is sent in one frame. */
  | { kind: 'record'; record: LogRecord };

/** A frame, numbered for one connection. */
export interface NumberedFrame {
  sequenceNumber: number;
  frame: TurnFrame;
}

/** An entry as read by a process that follows its turn. */
export interface FollowedEntry extends LogEntry {
  /** The attempt whose live text the message continues, if this process has received any of it. */
  liveAttempt?: number;
}

/**
 * Replay uses as few deltas as fit in this many bytes each: a face sends a frame as one line, and the Python client
 * fails on a line of 1 MiB. The limit decides the pieces of a durable message, which cursors name (`FIRST_PIECE`): with
 * another value, or cut differently, a reader that was cut in a longer message would continue at the wrong position. So
 * it is the same for every face.
 */
const MAX_DELTA_BYTES = 512 * 1024;

/** How much of which attempt at a message a connection has been sent. */
interface Sent {
  attempt: number;
  frames: number;
  lengths: TextLengths;
}

/**
 * Tracks what one connection has been sent of a turn and decides what it is sent next. Its input is the turn's entries
 * from the connection's cursor on and every change of the messages in progress; its output is a stream whose fold
 * equals the log's, wherever earlier connections were cut.
 *
 * A message whose live deltas were sent on this connection is completed by the missing deltas and an `end`. In every
 * other case a `begin`, which replaces what the client has, is sent again with the text.
 *
 * The record that precedes a message in progress is sent before its `begin`. Once it is durable it is sent again, which
 * replaces it, unless this connection has sent the same one.
 *
 * A reader that was cut in a message (its cursor is not a durable event's) gets as much as possible in the first frame:
 * the message so far in the `begin`, or, once it is durable, the whole message as a `record` under the ordinal's
 * number. So a reader that gets one event per connection gets past every message. A durable message that is too long
 * for one frame is sent in numbered pieces; one in progress is sent up to that length in the `begin`, and the rest in
 * deltas.
 */
export class StreamSequencer {
  #ordinal: number;
  #frame: number;
  /** The previous connection was cut after its last durable event. */
  #isCut: boolean;
  /** By the ids of the messages in progress. */
  readonly #sent = new Map<string, Sent>();
  /** By the ids of the results: how much of which attempt's output this connection was sent. */
  readonly #outputs = new Map<string, { attempt: number; length: number }>();
  /** The record at the next ordinal, if this connection was sent it before it was durable. */
  #preceding: McpInitialized | undefined;

  constructor(cursor: Cursor = BEGINNING) {
    this.#ordinal = cursor.ordinal;
    this.#frame = cursor.frame;
    this.#isCut = cursor.frame > 0;
  }

  /** The last durable event that the connection has been sent. */
  get ordinal(): number {
    return this.#ordinal;
  }

  /**
   * Gives the frames of the next entry of the log.
   * @throws Error if an entry was skipped: entries are passed one by one.
   */
  durable({ ordinal, record, liveAttempt }: FollowedEntry): NumberedFrame[] {
    if (ordinal !== this.#ordinal + 1) throw new Error(`entry ${ordinal} cannot follow ${this.#ordinal}`);
    if (record.kind === 'turn.created' && record.queued) return this.#neverBegun(record);
    const isSent = this.#preceding !== undefined && isDeepStrictEqual(record, this.#preceding);
    const { before, last } =
      record.kind === 'model.message' ? this.#finish(record, liveAttempt) : { before: [], last: recordFrame(record) };
    this.#outputs.delete(record.id);
    this.#ordinal = ordinal;
    this.#frame = 0;
    this.#isCut = false;
    this.#preceding = undefined;
    if (isSent) return [];
    return [...before, { sequenceNumber: sequenceNumber({ ordinal, frame: 0 }), frame: last }];
  }

  /**
   * Gives the frames of a message in progress that has grown by `delta`, or that may have text which this connection
   * lacks. None before the durable events that its model call has read, so a stream has the order of the log.
   */
  live(message: LiveMessage, delta?: MessageDelta): NumberedFrame[] {
    if (message.after > this.#ordinal) return [];
    const sent = this.#sent.get(message.id);
    const isSame = sent?.attempt === message.attempt;
    if (isSame && sent.frames === message.frames) return [];
    const preceding = isSame ? undefined : this.#unsentBefore(message);
    const frames = isSame
      ? deltaFrames(message, missing(message, sent, delta))
      : [
          ...(preceding ? [recordFrame(preceding)] : []),
          ...this.#begin(message, textDeltas(message.text, MAX_DELTA_BYTES)),
        ];
    // No text of an attempt may have arrived yet: an empty `begin` would replace what the client has.
    if (message.frames === 0 || frames.length === 0 || !this.#hasNumbersFor(frames.length)) return [];
    const { attempt, text } = message;
    this.#preceding = preceding ?? this.#preceding;
    this.#sent.set(message.id, { attempt, frames: message.frames, lengths: lengthsOf(text) });
    return this.#number(frames);
  }

  /**
   * Gives the frames of what a connection lacks of the output of a call that has not ended. The first one replaces what an
   * earlier connection was sent.
   */
  output({ parts, length, after, ...output }: OutputSoFar): NumberedFrame[] {
    if (after > this.#ordinal) return [];
    const sent = this.#outputs.get(output.id);
    const had = sent?.attempt === output.attempt ? sent.length : undefined;
    const pieces = partsAfter(parts, had ?? 0).flatMap(piecesOf);
    if (pieces.length === 0 || !this.#hasNumbersFor(pieces.length)) return [];
    this.#outputs.set(output.id, { attempt: output.attempt, length });
    return this.#number(
      pieces.map((part, i) => ({
        kind: 'output' as const,
        output,
        part,
        ...(had === undefined && i === 0 && { isReset: true as const }),
      })),
    );
  }

  /**
   * Gives the frame of a turn that waits in the queue of its session, and has no log yet. None for a reader that was sent
   * it before: nothing else comes before the first entry.
   */
  queued(created: TurnCreated): NumberedFrame[] {
    return this.#ordinal > 0 || this.#frame > 0 ? [] : this.#number([{ kind: 'queued', created }]);
  }

  /** Gives a frame that is not in the log; none for a reader that was not sent anything of the log yet. */
  transient(frame: TurnFrame): NumberedFrame[] {
    return this.#ordinal > 0 && this.#hasNumbersFor(1) ? this.#number([frame]) : [];
  }

  /** The first entry of a turn that has ended in the queue is what its readers were sent while it waited. */
  #neverBegun(record: TurnCreated): NumberedFrame[] {
    const isSent = this.#frame > 0;
    const frames = isSent ? [] : this.#number([recordFrame(record)]);
    this.#ordinal += 1;
    this.#frame = 0;
    this.#isCut = false;
    return frames;
  }

  /** The rest of a message: `last` takes the ordinal's number. */
  #finish(record: ModelMessage, liveAttempt: number | undefined): { before: NumberedFrame[]; last: TurnFrame } {
    const text = textOf(record);
    const sent = this.#sent.get(record.id);
    this.#sent.delete(record.id);
    const last: TurnFrame = { kind: 'end', message: record };
    if (sent && sent.attempt === liveAttempt) {
      const rest = deltaFrames(record, splitDelta(gainedSince(text, sent.lengths), MAX_DELTA_BYTES));
      if (this.#hasNumbersFor(rest.length)) return { before: this.#number(rest), last };
    }
    const pieces = textDeltas(text, MAX_DELTA_BYTES);
    if (!this.#isCut && this.#hasNumbersFor(pieces.length + 1)) {
      return { before: this.#number(this.#begin(record, pieces)), last };
    }
    if (pieces.length <= 1) return { before: [], last: recordFrame(record) };
    this.#isCut = true;
    const known = Math.max(0, this.#frame - FIRST_PIECE + 1);
    const frames = this.#begin(record, pieces).slice(known <= pieces.length ? known : 0);
    this.#frame = Math.max(this.#frame, FIRST_PIECE - 1);
    return { before: this.#number(frames), last };
  }

  /**
   * The record that precedes a message in progress, if the connection has not been sent it. A reader that was cut in the
   * message has been sent one; if it was another one, the durable record replaces it.
   */
  #unsentBefore({ after, preceding }: LiveMessage): McpInitialized | undefined {
    const isKnown = this.#isCut || after < this.#ordinal || isDeepStrictEqual(preceding, this.#preceding);
    return isKnown ? undefined : preceding;
  }

  /** The frames of a message of which the connection has been sent nothing; `pieces` are its text so far. */
  #begin(message: MessageHeader, pieces: MessageDelta[]): TurnFrame[] {
    const begin: TurnFrame = { kind: 'begin', message: headerOf(message), text: emptyText() };
    const [first, ...rest] = pieces;
    if (!first || !this.#isCut) return [begin, ...deltaFrames(message, pieces)];
    applyDelta(begin.text, first);
    return [begin, ...deltaFrames(message, rest)];
  }

  #hasNumbersFor(count: number): boolean {
    return this.#frame + count < FIRST_PIECE;
  }

  #number(frames: TurnFrame[]): NumberedFrame[] {
    return frames.map((frame) => {
      this.#frame += 1;
      return { sequenceNumber: sequenceNumber({ ordinal: this.#ordinal, frame: this.#frame }), frame };
    });
  }
}

function recordFrame(record: LogRecord): TurnFrame {
  return { kind: 'record', record };
}

function deltaFrames(message: MessageHeader, deltas: MessageDelta[]): TurnFrame[] {
  const header = headerOf(message);
  return deltas.map((delta) => ({ kind: 'delta', message: header, delta }));
}

/** A part of an output, as parts that fit into an event each. */
function piecesOf({ channel, text }: OutputPart): OutputPart[] {
  const pieces: OutputPart[] = [];
  for (let from = 0; from < text.length;) {
    const to = cutPoint(text, from, MAX_DELTA_BYTES);
    pieces.push({ channel, text: text.slice(from, to) });
    from = to;
  }
  return pieces;
}

/** Without the text: frames outlive the state of a message in progress, which grows. */
function headerOf({ id, at, threadId }: MessageHeader): MessageHeader {
  return { id, at, threadId };
}

/** The text of `message` that a connection lacks: `delta`, or more if it has not been sent all before that. */
function missing(message: LiveMessage, sent: Sent, delta: MessageDelta | undefined): MessageDelta[] {
  if (delta && sent.frames === message.frames - 1) return [delta];
  return splitDelta(gainedSince(message.text, sent.lengths), MAX_DELTA_BYTES);
}
