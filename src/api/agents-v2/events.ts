import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { json, route, type Route } from '../http/route.ts';
import { authorizeRead } from './access.ts';
import { exampleEvents } from './examples.ts';
import type { SessionReader } from './read-session.ts';
import { integerQuery, repeatedQuery } from './wire/query.ts';
import { eventPage } from './wire/session.ts';

const eventsQuery = z.object({
  page: integerQuery({ min: 1, max: 1_000_000_000 }).default(1),
  size: integerQuery({ min: 1, max: 200 }).default(50),
  sort: repeatedQuery(z.enum(['timestamp', '-timestamp']), 10)
    .default(['timestamp'])
    .describe('the order of events is that of their timestamps; -timestamp: the newest first'),
  type: z.string().max(100).optional().describe('only events of this type, exactly'),
});

/** All events of a session by pages. */
export function eventRoutes({ catalog }: ApiContext, reader: SessionReader): Route[] {
  return [
    route(
      'get',
      '/api/v2/sessions/:id/events',
      {
        id: 'listSessionEvents',
        tag: 'Agent sessions',
        summary: 'The events of a session by pages',
        query: eventsQuery,
        answer: json(eventPage, { items: exampleEvents, total: 2, page: 1 }),
        errors: ['session_not_found'],
      },
      async ({ params, query: { page, size, sort, type }, caller }) => {
        const { session } = await authorizeRead(catalog, params.id, caller);
        const { view } = await reader.read(session);
        const total = view.countOf(type);
        const [first, end] = [(page - 1) * size, page * size];
        // Later keys of an order only matter between equal times, whose events are in their own order.
        if (sort[0] !== '-timestamp') return { items: await view.range(first, end, type), total, page };
        const items = await view.range(Math.max(0, total - end), Math.max(0, total - first), type);
        return { items: items.reverse(), total, page };
      },
    ),
  ];
}
