import { z } from 'zod';
import type { Span } from '../../core/timeline.ts';
import { authorizeSession, requireTurn } from '../../engine/access.ts';
import { turnTimeline } from '../../engine/turn-attempts.ts';
import type { ApiContext } from '../http/context.ts';
import { positionOf, invalidPageToken, pageFrom, pageOf, pageQuery } from '../http/pagination.ts';
import type { Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { exampleSpan } from './examples.ts';
import { span } from './wire/timeline.ts';
import { spanToWire } from './wire/timeline-to-wire.ts';

const route = routesOf('Turns');

const query = pageQuery({ defaultLimit: 1000, maxLimit: 1000 });
const spanPosition = z.object({ turn: z.string(), span: z.int().min(1) });

/** What the turns of a session have spent their time on. */
export function timelineRoutes(context: ApiContext): Route[] {
  const { catalog } = context;
  return [
    route('get', '/v1/agents/sessions/:session_id/turns/:turn_id/timeline', {
      id: 'getTurnTimeline',
      summary: 'What a turn has spent its time on',
      description:
        'Each attempt of each model call and tool call, waits, pauses, sub-agents and the time in the queue, by their ' +
        'beginning. While the turn runs, the attempts that run are among them, as `pending`.',
      query,
      response: pageOf(span, [exampleSpan], 1000),
      handler: async ({ params, query: { limit, page_token: token }, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        const { turn_id: turnId } = params;
        await requireTurn(context, session, turnId);
        const { span: from = 0 } = positionOf(spanPosition, token, { turn: turnId }) ?? {};
        const spans = await turnTimeline(context, turnId);
        if (from > spans.length) throw invalidPageToken();
        const placed = (one: Span, i: number) => ({
          item: spanToWire(one),
          position: { turn: turnId, span: from + i },
        });
        return pageFrom(spans.values().drop(from).map(placed), limit);
      },
    }),
  ];
}
