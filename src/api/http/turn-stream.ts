import { parseCursor, type Cursor } from '../../core/cursor.ts';
import type { TurnCreated } from '../../core/records/turn.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import { StreamSequencer, type FollowedEntry, type NumberedFrame } from '../../live/stream-sequencer.ts';
import type { TurnTail, TailLease } from '../../live/turn-tail.ts';
import type { ApiContext } from './context.ts';
import { ApiError } from './errors.ts';
import type { EventStream, ServerSentEvent } from './event-stream.ts';

/** If the tail has not reached the reader's cursor after this time, the cursor is checked against the log. */
const CATCH_UP_MS = 2_000;

/** Entries that are sent at a time to a reader that catches up. */
const CATCH_UP_BATCH_SIZE = 100;

export interface TurnStreamOptions {
  context: Pick<ApiContext, 'catalog' | 'logs' | 'tails'>;
  turnId: string;
  reader: TurnReader;
  /** A lease on the turn's tail that was taken before the turn began. */
  lease?: TailLease;
  /** The turn's first record, if this request has started the turn: it is sent without reading the log. */
  created?: TurnCreated | undefined;
  /**
   * Responds with 204 if the reader is at the end of an ended turn: an EventSource reconnects without end after an
   * empty stream.
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
    if (reader.seen > row.archived_through) throw invalidCursor();
    if (endsWithNothing && reader.seen === row.archived_through) {
      stream.noContent();
      return true;
    }
    stream.open();
    await replay(context.logs, turnId, reader);
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

function invalidCursor(): ApiError {
  return new ApiError('invalid_cursor', 'the cursor is not from this stream: start again without one');
}

/**
 * One connection's reading of a turn: the frames that it lacks, and the stream that they are sent on. Each face has its
 * own, which translates frames to its events.
 */
export abstract class TurnReader {
  /** The last durable event that the client has: a cursor beyond the log is not from this turn's stream. */
  readonly seen: number;
  readonly sequencer: StreamSequencer;
  readonly stream: EventStream;

  /** @param from the cursor after which the log is read: its start for a face whose events depend on the whole log */
  constructor(stream: EventStream, cursor: Cursor, from = cursor) {
    this.seen = cursor.ordinal;
    this.sequencer = new StreamSequencer(from);
    this.stream = stream;
  }

  /** The last durable event that the reader has been sent. */
  get ordinal(): number {
    return this.sequencer.ordinal;
  }

  /** The events of frames, each made when it is sent. */
  protected abstract events(frames: NumberedFrame[]): Iterable<ServerSentEvent>;

  write(frames: NumberedFrame[]): Promise<void> {
    return this.stream.write(this.events(frames));
  }

  async writeEntries(entries: FollowedEntry[]): Promise<void> {
    await this.stream.write(this.#entryEvents(entries));
  }

  /** False if the reader cannot be sent more now: the caller then awaits `flush`, and catches up from the log. */
  push(frames: NumberedFrame[]): boolean {
    return this.stream.push(this.events(frames));
  }

  /** Sends what `push` did not. */
  flush(): Promise<void> {
    return this.stream.flush();
  }

  /** Called when the reader has been sent everything up to now; it may end its stream. */
  caughtUp(): void {}

  /** Each entry is cut into frames when it is sent: a hundred long messages at once would block the event loop. */
  *#entryEvents(entries: FollowedEntry[]): Generator<ServerSentEvent> {
    for (const entry of entries) yield* this.events(this.sequencer.durable(entry));
  }
}

interface Following extends Pick<ApiContext, 'logs'>, Required<Omit<TurnStreamOptions, 'context'>> {
  /** The turn waits in the queue of its session, or did a moment ago. */
  waits: boolean;
}

async function follow({ logs, turnId, reader, lease, created, waits, endsWithNothing }: Following): Promise<boolean> {
  const { stream } = reader;
  const { tail } = lease;
  const { feed } = tail;
  lease.run(created);
  await tail.ready;
  // A client that reconnects to a deleted turn must stop.
  if (tail.failure instanceof TurnNotFound) throw tail.failure;
  if (reader.seen > 0) await checkCursor(logs, turnId, reader, tail);
  if (endsWithNothing && feed.isDone && reader.seen === feed.lastOrdinal) {
    stream.noContent();
    return true;
  }
  const first = waits ? (await logs.firstAndLast(turnId)).created : undefined;
  stream.open();
  if (first?.queued) await reader.write(reader.sequencer.queued(first));
  for (let isOver = false; !isOver && !stream.isClosed;) {
    for (;;) {
      while (reader.ordinal < feed.lastOrdinal && !stream.isClosed) {
        const missing = feed.firstOrdinal - 1;
        if (reader.ordinal < missing) await replay(logs, turnId, reader, missing);
        else await reader.writeEntries(feed.entries(reader.ordinal + 1, CATCH_UP_BATCH_SIZE));
      }
      // The text of a message in progress may be megabytes, too: the part that the reader lacks is not buffered here.
      const inProgress = feed.inProgress(reader.sequencer);
      if (inProgress.length === 0 || stream.isClosed) break;
      await reader.write(inProgress);
    }
    reader.caughtUp();
    if (stream.isClosed) break;
    isOver = await live(tail, reader);
    // The reader did not keep up: it catches up at its own pace, from the log.
    if (!isOver) await reader.flush();
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
async function checkCursor(logs: ApiContext['logs'], turnId: string, reader: TurnReader, tail: TurnTail) {
  while (!(await tail.reaches(reader.seen, CATCH_UP_MS))) {
    if (tail.failure instanceof TurnNotFound) throw tail.failure;
    if (tail.isOver && !tail.ended) throw new ApiError('unavailable', 'the turn cannot be read currently');
    if (tail.ended || !(await has(logs, turnId, reader.seen))) throw invalidCursor();
  }
}

async function has(logs: ApiContext['logs'], turnId: string, ordinal: number): Promise<boolean> {
  for await (const { entries } of logs.readStored(turnId, { from: ordinal })) if (entries.length > 0) return true;
  return false;
}

/** Sends the log up to `through`, read from its store. */
async function replay(logs: ApiContext['logs'], turnId: string, reader: TurnReader, through = Infinity) {
  for await (const entries of logs.read(turnId, { from: reader.ordinal + 1 })) {
    await reader.writeEntries(entries.filter(({ ordinal }) => ordinal <= through));
    if (reader.ordinal >= through || reader.stream.isClosed) return;
  }
}

/** The cursor of an EventSource, which repeats the query of its first request: `Last-Event-ID` takes precedence. */
export function cursorOfEventSource(
  headers: { 'Last-Event-ID'?: string | undefined },
  query: string | undefined,
): Cursor {
  return cursorOf(undefined, headers['Last-Event-ID']?.trim() || query);
}

/** The cursor of a reader: from the body, else from `Last-Event-ID`. @throws ApiError `invalid_cursor` */
export function cursorOf(after: number | undefined, lastEventId = ''): Cursor {
  const header = lastEventId.trim();
  if (!/^\d{0,16}$/.test(header)) throw invalidCursor();
  const cursor = parseCursor(after ?? Number(header));
  if (!cursor) throw invalidCursor();
  return cursor;
}
