import type { Cursor } from '../../core/cursor.ts';
import type { TurnCreated } from '../../core/records.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import {
  StreamSequencer,
  type FollowedEntry,
  type NumberedFrame,
  type TurnFrame,
} from '../../live/stream-sequencer.ts';
import type { TurnTail, TailLease } from '../../live/turn-tail.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import type { EventStream, ServerSentEvent } from '../http/event-stream.ts';
import type { NumberedStreamEvent, StreamEvent } from './wire/events.ts';
import { toWire, turnCreatedToWire } from './wire/events-to-wire.ts';
import { deltaToWire, messageBase, messageEnd } from './wire/messages-to-wire.ts';
import { isShown, type View } from './wire/view.ts';

/** If the tail has not reached the reader's cursor after this time, the cursor is checked against the log. */
const CATCH_UP_MS = 2_000;

/** Entries that are sent at a time to a reader that catches up. */
const CATCH_UP_BATCH_SIZE = 100;

interface TurnStreamOptions {
  context: Pick<ApiContext, 'catalog' | 'logs' | 'tails'>;
  turnId: string;
  reader: TurnReader;
  /** A lease on the turn's tail that was taken before the turn began. */
  lease?: TailLease;
  /** The turn's first record, if this request has started the turn: it is sent without reading the log. */
  created?: TurnCreated | undefined;
  /**
   * Answers with 204 if the reader is at the end of an ended turn: an EventSource reconnects without end after an empty
   * stream.
   */
  endsWithNothing?: boolean;
}

/**
 * Streams a turn to one reader from its cursor on: the log so far, then each change, until the turn ends.
 * @throws ApiError, before anything is sent, if the cursor is not from this turn's stream
 */
export async function streamTurn(options: TurnStreamOptions): Promise<void> {
  await sendTurn(options);
  options.reader.stream.end();
}

/**
 * Does what `streamTurn` does, and leaves the stream open. False if the reader has not been sent the end of the turn:
 * it has disconnected, or the turn cannot be read.
 * @throws ApiError, before anything is sent, if the cursor is not from this turn's stream; TurnNotFound
 */
export async function sendTurn({
  context,
  turnId,
  reader,
  lease,
  created,
  endsWithNothing = false,
}: TurnStreamOptions): Promise<boolean> {
  const { stream } = reader;
  const row = created ? undefined : await context.catalog.turns.get(turnId);
  if (row?.archived) {
    if (reader.ordinal > row.archived_through) throw invalidCursor();
    if (endsWithNothing && reader.ordinal === row.archived_through) {
      stream.noContent();
      return true;
    }
    stream.open();
    await replay(context, turnId, reader);
    return reader.ordinal === row.archived_through;
  }
  const held = lease ?? context.tails.lease(turnId);
  try {
    const waits = row !== undefined && row.queue_number !== null && row.sequence === null;
    return await follow({ ...context, turnId, reader, lease: held, created, waits, endsWithNothing });
  } finally {
    held.release();
  }
}

export function invalidCursor(): ApiError {
  return new ApiError('invalid_cursor', 'the cursor is not from this stream: start again without one');
}

interface TurnReaderOptions {
  /** What the reader has already. */
  cursor: Cursor;
  stream: EventStream;
  view: View;
  /** Numbers an event for the stream, by its sequence number in the turn. */
  number?: (event: StreamEvent, sequenceNumber: number) => ServerSentEvent;
  /** Called once, when the first delta is written to the connection. */
  onFirstDelta?: (() => void) | undefined;
}

/** One connection's reading of a turn: the frames that it lacks, and the stream that they are sent on as events. */
export class TurnReader {
  readonly sequencer: StreamSequencer;
  readonly stream: EventStream;
  readonly #view: View;
  readonly #number: (event: StreamEvent, sequenceNumber: number) => ServerSentEvent;
  #onFirstDelta: (() => void) | undefined;

  constructor({ cursor, stream, view, number = numbered, onFirstDelta }: TurnReaderOptions) {
    this.sequencer = new StreamSequencer(cursor);
    this.stream = stream;
    this.#view = view;
    this.#number = number;
    this.#onFirstDelta = onFirstDelta;
  }

  /** The last durable event that the reader has been sent. */
  get ordinal(): number {
    return this.sequencer.ordinal;
  }

  write(frames: NumberedFrame[]): Promise<void> {
    return this.stream.write(this.#events(frames));
  }

  async writeEntries(entries: FollowedEntry[]): Promise<void> {
    await this.stream.write(this.#entryEvents(entries));
  }

  push(frames: NumberedFrame[]): boolean {
    return this.stream.push(this.#events(frames));
  }

  /** Each entry is cut into frames when it is sent: a hundred long messages at once would block the event loop. */
  *#entryEvents(entries: FollowedEntry[]): Generator<ServerSentEvent> {
    for (const entry of entries) yield* this.#events(this.sequencer.durable(entry));
  }

  *#events(frames: NumberedFrame[]): Generator<ServerSentEvent> {
    for (const { sequenceNumber, frame } of frames) {
      if (frame.kind === 'record' && !isShown(frame.record, this.#view)) continue;
      const event = frameToWire(frame);
      if (event.type === 'model.message.delta') {
        this.#onFirstDelta?.();
        this.#onFirstDelta = undefined;
      }
      yield this.#number(event, sequenceNumber);
    }
  }
}

function numbered(event: StreamEvent, sequenceNumber: number): ServerSentEvent {
  return { id: sequenceNumber, data: { ...event, sequence_number: sequenceNumber } satisfies NumberedStreamEvent };
}

/** A frame as clients see it. */
export function frameToWire(frame: TurnFrame): StreamEvent {
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
      };
    case 'queued':
      return turnCreatedToWire(frame.created, frame.position);
    case 'record':
      return toWire(frame.record);
  }
}

interface Following extends Pick<ApiContext, 'logs'> {
  turnId: string;
  reader: TurnReader;
  lease: TailLease;
  created: TurnCreated | undefined;
  /** The turn waits in the queue of its session, or has a moment ago. */
  waits: boolean;
  endsWithNothing: boolean;
}

async function follow({ logs, turnId, reader, lease, created, waits, endsWithNothing }: Following): Promise<boolean> {
  const { stream } = reader;
  const { tail } = lease;
  const { feed } = tail;
  lease.run(created);
  await tail.ready;
  // A client that reconnects to a deleted turn must stop.
  if (tail.failure instanceof TurnNotFound) throw tail.failure;
  if (reader.ordinal > 0) await checkCursor({ logs, turnId, reader, tail });
  if (endsWithNothing && feed.isDone && reader.ordinal === feed.lastOrdinal) {
    stream.noContent();
    return true;
  }
  const { created: first, position } = waits ? await logs.firstAndLast(turnId) : {};
  stream.open();
  if (first && position !== undefined) await reader.write(reader.sequencer.queued(first, position));
  for (let isOver = false; !isOver && !stream.isClosed;) {
    for (;;) {
      while (reader.ordinal < feed.lastOrdinal && !stream.isClosed) {
        if (reader.ordinal < feed.firstOrdinal - 1) {
          await replay({ logs }, turnId, reader, feed.firstOrdinal - 1);
        } else await reader.writeEntries(feed.entries(reader.ordinal + 1, CATCH_UP_BATCH_SIZE));
      }
      // The text of a message in progress may be megabytes, too: the part that the reader lacks is not buffered here.
      const inProgress = feed.inProgress(reader.sequencer);
      if (inProgress.length === 0 || stream.isClosed) break;
      await reader.write(inProgress);
    }
    isOver = await live(tail, reader);
    // The reader did not keep up: it catches up at its own pace, from the log.
    if (!isOver) await stream.flush();
  }
  return feed.isDone && reader.ordinal === feed.lastOrdinal;
}

/** Sends each change, until the turn ends (true), or the reader falls too far behind or disconnects (false). */
async function live(tail: TurnTail, reader: TurnReader): Promise<boolean> {
  const left = Promise.withResolvers<boolean>();
  if (!reader.stream.isClosed) {
    tail.feed.join(reader.sequencer, (frames) => {
      if (reader.push(frames)) return;
      tail.feed.leave(reader.sequencer);
      left.resolve(false);
    });
  }
  const unsubscribe = tail.onEnd(() => left.resolve(true));
  const ignoreClose = reader.stream.onClosed(() => left.resolve(false));
  try {
    return await left.promise;
  } finally {
    unsubscribe();
    ignoreClose();
    tail.feed.leave(reader.sequencer);
  }
}

/** Waits until the tail has reached the reader's cursor. */
async function checkCursor({
  logs,
  turnId,
  reader,
  tail,
}: Pick<Following, 'logs' | 'turnId' | 'reader'> & { tail: TurnTail }) {
  while (!(await tail.reaches(reader.ordinal, CATCH_UP_MS))) {
    if (tail.failure instanceof TurnNotFound) throw tail.failure;
    if (tail.isOver && !tail.ended) throw new ApiError('unavailable', 'the turn cannot be read currently');
    if (tail.ended || !(await has(logs, turnId, reader.ordinal))) throw invalidCursor();
  }
}

async function has(logs: ApiContext['logs'], turnId: string, ordinal: number): Promise<boolean> {
  for await (const { entries } of logs.readStored(turnId, { from: ordinal })) if (entries.length > 0) return true;
  return false;
}

/** Sends the log up to `through`, read from its store. */
async function replay(
  { logs }: Pick<ApiContext, 'logs'>,
  turnId: string,
  reader: TurnReader,
  through = Infinity,
): Promise<void> {
  for await (const entries of logs.read(turnId, { from: reader.ordinal + 1 })) {
    await reader.writeEntries(entries.filter(({ ordinal }) => ordinal <= through));
    if (reader.ordinal >= through || reader.stream.isClosed) return;
  }
}
