import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { disconnection } from '../http/disconnection.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { authorizeRead } from './access.ts';
import { exampleChanges } from './examples.ts';
import { toChanges, type SessionReader } from './read-session.ts';
import { sessionChanges } from './wire/session.ts';
import { booleanQuery, integerQuery } from './wire/query.ts';

const route = routesOf('Agent sessions');

const MAX_WAIT_SECONDS = 25;

const changesQuery = z.object({
  from_index: integerQuery().default(0).describe('how many events you have; negative is 0'),
  limit: integerQuery({ min: 0 }).optional().describe('the most events to return; a page has at most 500'),
  include_events: booleanQuery.default(true).describe('false: only the state'),
  wait_for_seconds: integerQuery({ min: 0, max: MAX_WAIT_SECONDS })
    .default(0)
    .describe('how long to wait for an event if there is none after from_index'),
});

/** The long poll: the events of a session after those that a client has, with the state. */
export function changesRoutes({ catalog }: ApiContext, reader: SessionReader): Route[] {
  return [
    route('get', '/api/v2/sessions/:id/changes', {
      id: 'getSessionChanges',
      summary: 'The events after those that you have, and the state of the session',
      description:
        'The next `from_index` is the number of all events that you have. A 204 means that there are no further ' +
        'events, also after the session has ended: `/status` says whether it has.',
      query: changesQuery,
      response: { written: { 'application/json': json(sessionChanges, exampleChanges) } },
      noContent: 'the session has no event after `from_index`; `ETag` repeats it',
      handler: async ({ params, query, caller, response }) => {
        const { session } = await authorizeRead(catalog, params.id, caller);
        const from = Math.max(0, query.from_index);
        const { include_events: withEvents, limit, wait_for_seconds: seconds } = query;
        let read = await reader.read(session);
        if (read.view.count <= from && seconds > 0) {
          const gone = disconnection(response);
          await read.view.untilGrown(from, { timeoutMs: seconds * 1000, signal: gone });
          if (gone.aborted) return;
          // Authorized again: the session may have been deleted or unshared meanwhile, or have left the queue.
          read = await reader.read((await authorizeRead(catalog, params.id, caller)).session);
        }
        if (read.view.count <= from) {
          response.set('etag', String(from)).status(204).end();
          return;
        }
        const events = withEvents ? await read.view.page(from, limit) : [];
        response.json(toChanges(read, events, from));
      },
    }),
  ];
}
