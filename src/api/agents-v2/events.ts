import { z } from 'zod';
import { authorizeSession } from '../../engine/access.ts';
import type { ApiContext } from '../http/context.ts';
import { json, route, type Route } from '../http/route.ts';
import { exampleEvents } from './examples.ts';
import type { SessionReader } from './read-session.ts';
import { fromUuid } from './session-ids.ts';
import { integerQuery } from './wire/query.ts';
import { eventPage } from './wire/session.ts';

const eventsQuery = z.object({
  page: integerQuery({ min: 1 }).default(1),
  size: integerQuery({ min: 1, max: 200 }).default(50),
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
      async ({ params, query: { page, size }, caller }) => {
        const session = await authorizeSession(catalog, fromUuid(params.id), caller, 'read');
        const { view } = await reader.read(session);
        return { items: await view.page((page - 1) * size, size), total: view.count, page };
      },
    ),
  ];
}
