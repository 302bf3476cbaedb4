import { readerOf } from '../../auth/rights.ts';
import { MAX_QUEUED } from '../../core/turn-queue.ts';
import { authorizeSession } from '../../engine/access.ts';
import { unlessUnreadable } from '../../engine/turn-log-reader.ts';
import type { ApiContext } from '../http/context.ts';
import { pagination, pageOf } from '../http/pagination.ts';
import type { Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { exampleTurn } from './examples.ts';
import { turnResource } from './wire/resources.ts';
import { toTurnResource } from './wire/resources-to-wire.ts';

const route = routesOf('Turns');

/** The queue of a session: the turns that have not begun, which the list of its turns does not have. */
export function queueRoutes({ catalog, logs, turnIndex, log }: ApiContext): Route[] {
  return [
    route('get', '/v1/agents/sessions/:session_id/queue', {
      id: 'listQueue',
      summary: 'The turns that wait in the queue of a session, in their order',
      description: `All of them, on one page: at most ${MAX_QUEUED} can wait. Each is cancelled by its id.`,
      answer: pageOf(
        turnResource,
        [{ ...exampleTurn, state: { status: 'running', queued: { position: 1 } } }],
        MAX_QUEUED,
      ),
      handler: async ({ params, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        await turnIndex.reconcileRequests(session.id);
        const queue = await turnIndex.queued(session.id);
        const turns = await Promise.all(
          queue.map(({ turnId }) => unlessUnreadable(logs.firstAndLast(turnId), { log, turnId })),
        );
        const reader = readerOf(caller, session);
        // The others have begun or ended in the meantime.
        const waiting = turns.flatMap((turn) => (turn?.position === undefined ? [] : [toTurnResource(turn, reader)]));
        return { data: waiting, pagination: pagination(MAX_QUEUED, undefined) };
      },
    }),
  ];
}
