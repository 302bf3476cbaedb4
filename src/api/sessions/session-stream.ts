import { z } from 'zod';
import type { PositionedTurn } from '../../features/session-stream/turn-positions.ts';
import { BEGINNING, FRAMES_PER_ORDINAL, type Cursor } from '../../core/cursor.ts';
import { readerOf } from '../../auth/rights.ts';
import { authorizeSession } from '../../engine/access.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import { isUnavailable } from '../../engine/unavailable.ts';
import type { ApiContext } from '../http/context.ts';
import { EventStream } from '../http/event-stream.ts';
import { json, type Route } from '../http/route.ts';
import { cursorOfEventSource, sendTurn } from '../http/turn-stream.ts';
import { routesOf } from './route.ts';
import { exampleSessionServerSentEvent } from './examples.ts';
import { TurnEventReader, type TurnEventReaderOptions } from './turn-event-reader.ts';
import { sessionServerSentEvent, sessionStreamEvent, type SessionStreamEvent } from './wire/events.ts';
import { after, lastEventId } from '../http/headers.ts';
import { viewQuery } from './wire/view.ts';

const route = routesOf('Events');

/** One connection, and what its reader is shown. */
type Readership = Pick<TurnEventReaderOptions, 'stream' | 'view' | 'reader'>;

/** The stream of a session, over all of its turns. */
export function sessionStreamRoutes(context: ApiContext): Route[] {
  const { catalog, metrics, streamLimits, sessionIndex, sessionWatches, log } = context;
  return [
    route('get', '/v1/agents/sessions/:session_id/stream', {
      id: 'streamSession',
      summary: 'The stream of a session from a cursor on',
      description:
        'The events of all turns in the order of the turns, each with its `turn_id`. The stream stays open between ' +
        'turns and follows every turn that starts. Its sequence numbers count on over all turns, and are not those of ' +
        "the turns' own streams. It ends when the session is deleted.",
      query: z.object({ ...after, ...viewQuery }),
      headers: z.object(lastEventId),
      schemas: { SessionStreamEvent: sessionStreamEvent },
      response: { written: { 'text/event-stream': json(sessionServerSentEvent, exampleSessionServerSentEvent) } },
      handler: async ({ params, query, headers, caller, request, response }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        const cursor = cursorOfEventSource(headers, query.after);
        if (request.method === 'HEAD') return void response.type('text/event-stream').end();
        streamLimits.admit(caller, response);
        const stream = new EventStream(response, metrics);
        await streamSession(session.id, cursor, { stream, view: query.view, reader: readerOf(caller, session) });
      },
    }),
  ];

  /**
   * Streams a session to one reader, turn by turn, until the reader disconnects or the session is deleted.
   * @param cursor what the reader has already: its ordinal is a position in the session
   * @throws EngineError or ApiError `invalid_cursor`, before anything is sent, if the cursor is not from this stream
   */
  async function streamSession(sessionId: string, cursor: Cursor, readership: Readership): Promise<void> {
    const { stream } = readership;
    // Before the first search, so that no turn is missed after it.
    using watch = sessionWatches.watch(sessionId, () => stream.end());
    stream.onClosed(() => watch[Symbol.dispose]());
    let seen = cursor;
    let turn = await sessionIndex.turnAfter(sessionId, seen.ordinal);
    while (!stream.isClosed) {
      const end = turn && (await sendPlaced(context, turn, seen, readership));
      if (end !== undefined) seen = { ordinal: end, frame: 0 };
      else {
        stream.open();
        const { ordinal } = seen;
        await watch.untilNews(({ hasUnplaced, lastPosition }) => !hasUnplaced && (lastPosition ?? -1) < ordinal);
      }
      turn = await sessionIndex.turnAfter(sessionId, seen.ordinal).catch((error: unknown) => {
        if (!isUnavailable(error)) throw error;
        log.debug({ sessionId, err: error }, 'cannot look for the next turn of a session; retrying');
        return undefined;
      });
    }
    stream.end();
  }
}

/**
 * Sends the rest of a turn as events of its session. A sequence number of the session is that of the turn, with the
 * events before the turn added to its ordinal; so within a turn the rules of the turn's own stream apply. Returns the
 * position of the last event that was sent; undefined if the turn's history was lost.
 */
async function sendPlaced(
  context: ApiContext,
  { id: turnId, events_before: before }: PositionedTurn,
  { ordinal, frame }: Cursor,
  options: Readership,
): Promise<number | undefined> {
  const reader = new TurnEventReader({
    cursor: ordinal > before ? { ordinal: ordinal - before, frame } : BEGINNING,
    ...options,
    number: (event, sequenceNumber) => {
      const id = before * FRAMES_PER_ORDINAL + sequenceNumber;
      return { id, data: { ...event, turn_id: turnId, sequence_number: id } satisfies SessionStreamEvent };
    },
  });
  try {
    // A turn that cannot be read ends the stream, as it ends the turn's own: the reader resumes.
    if (!(await sendTurn({ context, turnId, reader }))) options.stream.end();
    return before + reader.ordinal;
  } catch (error) {
    if (error instanceof TurnNotFound) return undefined;
    throw error;
  }
}
