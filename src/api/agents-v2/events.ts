import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { authorizeRead } from './access.ts';
import { exampleEvents } from './examples.ts';
import type { SessionReader } from './read-session.ts';
import type { SessionView } from './session-view.ts';
import type { SessionEvent } from './wire/events.ts';
import { integerQuery, repeatedQuery } from './wire/query.ts';
import { eventPage } from './wire/session.ts';

const route = routesOf('Agent sessions');

const eventsQuery = z.object({
  page: integerQuery({ min: 1, max: 1_000_000_000 }).default(1),
  size: integerQuery({ min: 1, max: 200 }).default(50),
  sort: repeatedQuery(z.enum(['timestamp', '-timestamp']), 10)
    .default(['timestamp'])
    .describe('the order of events is that of their timestamps; -timestamp: the newest first'),
  type: z.string().max(100).optional().describe('only events of this type, exactly'),
});

/** How many events are in memory at once to write a page backwards. */
const SLICE = 20;

/**
 * All events of a session by pages. A page is written as it is read, however large it gets: it cannot be cut, because
 * clients compute the next page from the number of events that they asked for.
 */
export function eventRoutes({ catalog }: ApiContext, reader: SessionReader): Route[] {
  return [
    route('get', '/api/v2/sessions/:id/events', {
      id: 'listSessionEvents',
      summary: 'The events of a session by pages',
      query: eventsQuery,
      response: {
        written: { 'application/json': json(eventPage, { items: exampleEvents, total: 2, page: 1 }) },
      },
      handler: async ({ params, query: { page, size, sort, type }, caller, response }) => {
        const { session } = await authorizeRead(catalog, params.id, caller);
        const { view } = await reader.read(session);
        const total = view.countOf(type);
        const [first, end] = [Math.min(total, (page - 1) * size), Math.min(total, page * size)];
        // Only the first sort key has an effect: events of equal times keep their own order.
        const events =
          sort[0] === '-timestamp' ? newestFirst(view, total - end, total - first, type) : view.range(first, end, type);
        response.type('application/json');
        await pipeline(pageText(events, { total, page }), response);
      },
    }),
  ];
}

async function* newestFirst(
  view: SessionView,
  first: number,
  end: number,
  type?: string,
): AsyncGenerator<SessionEvent> {
  for (let to = end; to > first; to -= SLICE) {
    const slice = await Array.fromAsync(view.range(Math.max(first, to - SLICE), to, type));
    yield* slice.reverse();
  }
}

async function* pageText(
  events: AsyncIterable<SessionEvent>,
  rest: { total: number; page: number },
): AsyncGenerator<string> {
  yield `${JSON.stringify(rest).slice(0, -1)},"items":[`;
  let separator = '';
  for await (const event of events) {
    yield separator + JSON.stringify(event);
    separator = ',';
  }
  yield ']}';
}
