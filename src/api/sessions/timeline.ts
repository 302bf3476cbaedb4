import { z } from 'zod';
import { authorizeSession, requireTurn } from '../../engine/access.ts';
import { turnTimeline } from '../../engine/turn-attempts.ts';
import type { ApiContext } from '../http/context.ts';
import { decodePageToken, invalidPageToken, Page, pageOf, pageQuery, pagination } from '../http/pagination.ts';
import { json, route, type Route } from '../http/route.ts';
import { examplePage, exampleSpan } from './examples.ts';
import { span, type WireSpan } from './wire/timeline.ts';
import { spanToWire } from './wire/timeline-to-wire.ts';

const query = pageQuery({ defaultLimit: 1000, maxLimit: 1000 });
const place = z.object({ turn: z.string(), span: z.int().min(1) });

/** What the turns of a session have spent their time on. */
export function timelineRoutes(context: ApiContext): Route[] {
  const { catalog } = context;
  return [
    route(
      'get',
      '/v1/agents/sessions/:session_id/turns/:turn_id/timeline',
      {
        id: 'getTurnTimeline',
        tag: 'Turns',
        summary: 'What a turn has spent its time on',
        description:
          'Each attempt of each model call and tool call, waits, pauses, sub-agents and the time in the queue, by their ' +
          'beginning. While the turn runs, the attempts that run are among them, as `pending`.',
        query,
        answer: json(pageOf(span), { data: [exampleSpan], pagination: examplePage(1000) }),
        errors: ['invalid_page_token', 'session_not_found', 'turn_not_found'],
      },
      async ({ params: { session_id: sessionId, turn_id: turnId }, query: { limit, page_token: token }, caller }) => {
        const session = await authorizeSession(catalog, sessionId, caller, 'read');
        await requireTurn(context, session, turnId);
        const from = token === undefined ? { turn: turnId, span: 0 } : decodePageToken(place, token);
        const spans = await turnTimeline(context, turnId);
        if (from.turn !== turnId || from.span > spans.length) throw invalidPageToken();
        const page = new Page<WireSpan>(limit);
        const full = spans.slice(from.span).findIndex((one) => !page.add(spanToWire(one)));
        const next = full === -1 ? undefined : { turn: turnId, span: from.span + full };
        return { data: page.items, pagination: pagination(limit, next) };
      },
    ),
  ];
}
