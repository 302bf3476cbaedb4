import type { Cursor } from '../log/ordinals.ts';
import type { LogEntry } from '../log/records.ts';
import { TurnReader } from '../live/turn-reader.ts';
import type { TailLease } from '../live/turn-tails.ts';
import type { ApiContext } from './context.ts';
import { ApiError } from './errors.ts';
import type { EventStream } from './sse.ts';

/** How long a tail may take to have what its reader has; past it the reader's cursor is looked up in the log itself. */
const CATCH_UP_MS = 2_000;

/** Entries that are sent at a time to a reader who has much to catch up. */
const BATCH = 100;

interface TurnStreamOptions {
  context: Pick<ApiContext, 'catalog' | 'logs' | 'tails' | 'log'>;
  turnId: string;
  /** What the reader has already. */
  cursor: Cursor;
  stream: EventStream;
  /** If the caller has listened to the turn since before it began. */
  lease?: TailLease;
}

/**
 * Streams a turn to one reader from its cursor on: what has happened, what happens now, until the turn ends.
 * @throws ApiError, before anything is sent, if the cursor is not from this turn's stream
 */
export async function streamTurn({ context, turnId, cursor, stream, lease }: TurnStreamOptions): Promise<void> {
  const reader = new TurnReader(cursor);
  const row = lease ? undefined : await context.catalog.turns.get(turnId);
  if (row?.archived) {
    if (cursor.ordinal > row.archived_through) throw badCursor();
    stream.open();
    await replay(context, turnId, reader, stream);
    stream.end();
    return;
  }
  const held = lease ?? context.tails.lease(turnId, cursor.ordinal);
  try {
    await follow({ ...context, turnId, reader, stream, lease: held });
  } finally {
    held.release();
  }
}

export function badCursor(): ApiError {
  return new ApiError('invalid_cursor', 'the cursor is not from a stream of this turn: start again without one');
}

interface Following extends Pick<ApiContext, 'logs' | 'log'> {
  turnId: string;
  reader: TurnReader;
  stream: EventStream;
  lease: TailLease;
}

async function follow({ logs, log, turnId, reader, stream, lease }: Following): Promise<void> {
  const { tail } = lease;
  const { feed } = tail;
  const running = lease.run();
  running.catch(() => undefined); // its readers are told below
  if (reader.ordinal > 0) await checkCursor({ logs, turnId, reader, lease });
  stream.open();
  while (reader.ordinal < feed.lastOrdinal && !stream.isClosed) {
    if (reader.ordinal < feed.firstOrdinal - 1) await replay({ logs }, turnId, reader, stream, feed.firstOrdinal - 1);
    else await catchUp(feed.entries(reader.ordinal + 1, BATCH), reader, stream);
  }
  if (!stream.isClosed) feed.join(reader, (frames) => stream.push(frames));
  running.then(
    () => stream.end(),
    (error: unknown) => {
      // A turn that was deleted under its readers has no end to send.
      log.error({ turnId, err: error }, 'a turn can not be followed any more');
      stream.end();
    },
  );
  await stream.untilClosed();
  feed.leave(reader);
}

/** Waits until the tail has what the reader has. */
async function checkCursor({
  logs,
  turnId,
  reader,
  lease,
}: Pick<Following, 'logs' | 'turnId' | 'reader' | 'lease'>): Promise<void> {
  while (!(await lease.tail.reaches(reader.ordinal, CATCH_UP_MS))) {
    if (lease.tail.ended) throw badCursor();
    const { value: found } = await logs.readStored(turnId, { from: reader.ordinal }).next();
    if (!found || found.entries.length === 0) throw badCursor();
  }
}

async function replay(
  { logs }: Pick<ApiContext, 'logs'>,
  turnId: string,
  reader: TurnReader,
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

async function catchUp(entries: LogEntry[], reader: TurnReader, stream: EventStream): Promise<void> {
  await stream.write(entries.flatMap((entry) => reader.durable(entry)));
}
