import type { Cursor } from '../../core/cursor.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import { StreamSequencer, type FollowedEntry } from '../../live/stream-sequencer.ts';
import type { TurnTail, TailLease } from '../../live/turn-tail.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import type { EventStream } from '../http/event-stream.ts';

/** How long a tail may take to have what its reader has; past it the reader's cursor is looked up in the log itself. */
const CATCH_UP_MS = 2_000;

/** Entries that are sent at a time to a reader who has much to catch up. */
const BATCH = 100;

interface TurnStreamOptions {
  context: Pick<ApiContext, 'catalog' | 'logs' | 'tails'>;
  turnId: string;
  /** What the reader has already. */
  cursor: Cursor;
  stream: EventStream;
  /** If the caller has listened to the turn since before it began. */
  lease?: TailLease;
  /** Whether a reader who has the end already is told that there is nothing, by 204: an EventSource comes back for ever else. */
  endsWithNothing?: boolean;
}

/**
 * Streams a turn to one reader from its cursor on: what has happened, what happens now, until the turn ends.
 * @throws ApiError, before anything is sent, if the cursor is not from this turn's stream
 */
export async function streamTurn({
  context,
  turnId,
  cursor,
  stream,
  lease,
  endsWithNothing = false,
}: TurnStreamOptions): Promise<void> {
  const reader = new StreamSequencer(cursor);
  const row = lease ? undefined : await context.catalog.turns.get(turnId);
  if (row?.archived) {
    if (cursor.ordinal > row.archived_through) throw invalidCursor();
    if (endsWithNothing && cursor.ordinal === row.archived_through) return stream.noContent();
    stream.open();
    await replay(context, turnId, reader, stream);
    stream.end();
    return;
  }
  const held = lease ?? context.tails.lease(turnId);
  try {
    await follow({ ...context, turnId, reader, stream, lease: held, endsWithNothing });
  } finally {
    held.release();
  }
}

export function invalidCursor(): ApiError {
  return new ApiError('invalid_cursor', 'the cursor is not from a stream of this turn: start again without one');
}

interface Following extends Pick<ApiContext, 'logs'> {
  turnId: string;
  reader: StreamSequencer;
  stream: EventStream;
  lease: TailLease;
  endsWithNothing: boolean;
}

async function follow({ logs, turnId, reader, stream, lease, endsWithNothing }: Following): Promise<void> {
  const { tail } = lease;
  const { feed } = tail;
  lease.run();
  await tail.begun;
  // Who comes back to a turn that was deleted is to stop.
  if (tail.failure instanceof TurnNotFound) throw tail.failure;
  if (reader.ordinal > 0) await checkCursor({ logs, turnId, reader, tail });
  if (endsWithNothing && feed.isDone && reader.ordinal === feed.lastOrdinal) return stream.noContent();
  stream.open();
  const closed = stream.untilClosed();
  for (let isOver = false; !isOver && !stream.isClosed;) {
    for (;;) {
      while (reader.ordinal < feed.lastOrdinal && !stream.isClosed) {
        if (reader.ordinal < feed.firstOrdinal - 1) {
          await replay({ logs }, turnId, reader, stream, feed.firstOrdinal - 1);
        } else await catchUp(feed.entries(reader.ordinal + 1, BATCH), reader, stream);
      }
      // The text of a message in progress may be megabytes, too: what the reader lacks of it waits here, not in a buffer.
      const inProgress = feed.inProgress(reader);
      if (inProgress.length === 0 || stream.isClosed) break;
      await stream.write(inProgress);
    }
    isOver = await live({ tail, reader, stream, closed });
    // More came at once than the reader could take: it goes on at its own pace, from the log.
    if (!isOver) await stream.drained();
  }
  stream.end();
}

interface Live extends Pick<Following, 'reader' | 'stream'> {
  tail: TurnTail;
  closed: Promise<void>;
}

/** Sends what happens now, until the turn is over (true), or the reader is too far behind or gone (false). */
async function live({ tail, reader, stream, closed }: Live): Promise<boolean> {
  const left = Promise.withResolvers<boolean>();
  if (!stream.isClosed) {
    tail.feed.join(reader, (frames) => {
      if (stream.push(frames)) return;
      tail.feed.leave(reader);
      left.resolve(false);
    });
  }
  const forget = tail.onEnd(() => left.resolve(true));
  void closed.then(() => left.resolve(false));
  try {
    return await left.promise;
  } finally {
    forget();
    tail.feed.leave(reader);
  }
}

/** Waits until the tail has what the reader has. */
async function checkCursor({
  logs,
  turnId,
  reader,
  tail,
}: Omit<Following, 'stream' | 'lease' | 'endsWithNothing'> & { tail: TurnTail }) {
  while (!(await tail.reaches(reader.ordinal, CATCH_UP_MS))) {
    if (tail.failure instanceof TurnNotFound) throw tail.failure;
    if (tail.isOver && !tail.ended) throw new ApiError('unavailable', 'the turn can not be read for the moment');
    if (tail.ended || !(await has(logs, turnId, reader.ordinal))) throw invalidCursor();
  }
}

async function has(logs: ApiContext['logs'], turnId: string, ordinal: number): Promise<boolean> {
  for await (const { entries } of logs.readStored(turnId, { from: ordinal })) if (entries.length > 0) return true;
  return false;
}

async function replay(
  { logs }: Pick<ApiContext, 'logs'>,
  turnId: string,
  reader: StreamSequencer,
  stream: EventStream,
  through = Infinity,
): Promise<void> {
  for await (const entries of logs.read(turnId, { from: reader.ordinal + 1 })) {
    await catchUp(
      entries.filter(({ ordinal }) => ordinal <= through),
      reader,
      stream,
    );
    if (reader.ordinal >= through || stream.isClosed) return;
  }
}

async function catchUp(entries: FollowedEntry[], reader: StreamSequencer, stream: EventStream): Promise<void> {
  await stream.write(entries.flatMap((entry) => reader.durable(entry)));
}
