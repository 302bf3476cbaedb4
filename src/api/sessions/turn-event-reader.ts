import type { Reader } from '../../auth/rights.ts';
import type { Cursor } from '../../core/cursor.ts';
import { isoTime } from '../../core/text.ts';
import type { NumberedFrame, TurnFrame } from '../../live/stream-sequencer.ts';
import type { EventStream, ServerSentEvent } from '../http/event-stream.ts';
import { TurnReader } from '../http/turn-stream.ts';
import type { NumberedStreamEvent, StreamEvent } from './wire/events.ts';
import { activitiesToWire, retryingToWire } from './wire/activities-to-wire.ts';
import { toWire } from './wire/events-to-wire.ts';
import { deltaToWire, messageBase, messageEnd } from './wire/messages-to-wire.ts';
import { isInView, type View } from './wire/view.ts';

export interface TurnEventReaderOptions {
  /** What the reader has already. */
  cursor: Cursor;
  stream: EventStream;
  view: View;
  reader: Reader;
  /** Numbers an event for the stream, by its sequence number in the turn. */
  number?: (event: StreamEvent, sequenceNumber: number) => ServerSentEvent;
  /** Called once, when the first delta is written to the connection. */
  onFirstDelta?: (() => void) | undefined;
}

/** Reads a turn as the events of this API. */
export class TurnEventReader extends TurnReader {
  readonly #options: TurnEventReaderOptions;
  #isFirstDelta = true;

  constructor(options: TurnEventReaderOptions) {
    super(options.stream, options.cursor);
    this.#options = options;
  }

  protected override *events(frames: NumberedFrame[]): Generator<ServerSentEvent> {
    const { view, reader, number = numbered, onFirstDelta } = this.#options;
    for (const { sequenceNumber, frame } of frames) {
      if (frame.kind === 'record' && !isInView(frame.record, view)) continue;
      if ((frame.kind === 'retrying' || frame.kind === 'output') && view !== 'full') continue;
      const event = frameToWire(frame, reader, view);
      if (event.type === 'model.message.delta' && this.#isFirstDelta) {
        this.#isFirstDelta = false;
        onFirstDelta?.();
      }
      yield number(event, sequenceNumber);
    }
  }
}

function numbered(event: StreamEvent, sequenceNumber: number): ServerSentEvent {
  return { id: sequenceNumber, data: { ...event, sequence_number: sequenceNumber } satisfies NumberedStreamEvent };
}

/** A frame as a reader sees it. */
export function frameToWire(frame: TurnFrame, reader: Reader, view: View = 'default'): StreamEvent {
  switch (frame.kind) {
    case 'begin':
      return messageBase(frame.message, frame.text);
    case 'delta':
      return deltaToWire(frame.message, frame.delta);
    case 'end':
      return {
        type: 'model.message.delta',
        id: frame.message.id,
        thread_id: frame.message.threadId,
        ...messageEnd(frame.message),
        ...activitiesToWire(frame.message.activities, view),
      };
    case 'output': {
      const { id, attempt, threadId, toolCallId } = frame.output;
      const { channel, text: content } = frame.part;
      return {
        type: 'tool.response.delta',
        id,
        created_at: isoTime(attempt),
        thread_id: threadId,
        tool_call_id: toolCallId,
        channel,
        content,
        ...(frame.isReset && { reset: true }),
      };
    }
    case 'queued':
      return toWire(frame.created, reader);
    case 'retrying':
      return retryingToWire(frame.notice);
    case 'record':
      return toWire(frame.record, reader, view);
  }
}
