import { z } from 'zod';
import type { Reader } from '../../auth/rights.ts';
import type { LogEntry } from '../../core/records/log.ts';
import { ignoreUnreadable } from '../../engine/turn-log-reader.ts';
import { identifier } from '../../spec/bounds.ts';
import type { ApiContext } from '../http/context.ts';
import { invalidPageToken, positionOf, order, pageFrom, pageQuery, pageOf } from '../http/pagination.ts';
import { exampleMessage } from './examples.ts';
import { turnEvent, type SessionEvent } from './wire/events.ts';
import { toWire } from './wire/events-to-wire.ts';
import { isInView, viewQuery, type View } from './wire/view.ts';

type LogContext = Pick<ApiContext, 'logs' | 'log'>;

/** The query of a list of events that may be those of one thread. */
export const threadQuery = {
  thread_id: identifier
    .optional()
    .describe(
      'the events of this thread alone, without those of none, such as `sandbox.created`; a page may have fewer than ' +
        '`limit`, and none if the thread is far away: `next_page_token` continues it',
    ),
};

export const turnEventsQuery = pageQuery({ defaultLimit: 25, maxLimit: 1000 }).extend({
  order: order.default('asc'),
  ...threadQuery,
  ...viewQuery,
});

export const turnEventsResponse = pageOf(turnEvent, [exampleMessage], 25);

const turnPosition = z.object({ turn: z.string(), order, ordinal: z.int().min(1) });

/** Entries per read: most of the largest ones have 250 KB each. */
const MAX_BATCH_SIZE = 100;

interface EntryOptions {
  /** The first ordinal, from a page token; undefined for the first page. */
  fromOrdinal: number | undefined;
  limit: number;
  order: 'asc' | 'desc';
  view: View;
  /** A turn that no longer exists, or cannot be read, counts as empty, so that the others are shown. */
  isOneOfSeveral?: boolean;
}

/** A page of a turn's events, without `turn.created` and `turn.done`. @throws ApiError `invalid_page_token` */
export async function turnEvents(
  context: LogContext,
  turnId: string,
  query: z.output<typeof turnEventsQuery>,
  reader: Reader,
) {
  const { limit, order, view, page_token: token, thread_id: threadId } = query;
  const first = positionOf(turnPosition, token, { turn: turnId, order });
  const options = { fromOrdinal: first?.ordinal, limit, order, view };
  async function* listing() {
    for await (const { ordinal, record } of entries(context, turnId, options)) {
      const item = toWire(record, reader, view);
      if (item.type === 'turn.created' || item.type === 'turn.done') continue;
      const position = { turn: turnId, order, ordinal } satisfies z.infer<typeof turnPosition>;
      yield { item, position, isLeftOut: isOfOtherThread(item, threadId) };
    }
  }
  return pageFrom(listing(), limit);
}

/** Whether a list of the events of a thread leaves an event out; `threadId` is undefined for a list of all threads. */
export function isOfOtherThread(event: SessionEvent, threadId: string | undefined): boolean {
  return threadId !== undefined && event.thread_id !== threadId;
}

/**
 * The entries of a turn, read as they are consumed.
 * @throws ApiError if there is no entry at `place`: it is not from a page token of this listing
 */
export async function* entries(
  { logs, log }: LogContext,
  turnId: string,
  { fromOrdinal, limit, order, view, isOneOfSeveral }: EntryOptions,
): AsyncGenerator<LogEntry> {
  // Three more than the limit: the turn's first and last entry, and an entry that shows whether there is a next page.
  const batch = Math.min(limit + 3, MAX_BATCH_SIZE);
  const batches =
    order === 'asc'
      ? logs.read(turnId, { from: fromOrdinal ?? 1 })
      : logs.readBackwards(turnId, { from: fromOrdinal ?? Infinity, batch });
  let isFound = fromOrdinal === undefined;
  for await (const entries of isOneOfSeveral ? ignoreUnreadable(batches, { log, turnId }) : batches) {
    for (const entry of entries) {
      isFound ||= entry.ordinal === fromOrdinal;
      if (!isFound) throw invalidPageToken();
      if (isInView(entry.record, view)) yield entry;
    }
  }
  if (!isFound) throw invalidPageToken();
}
