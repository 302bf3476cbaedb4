import { z } from 'zod';
import { readerOf } from '../../auth/rights.ts';
import type { TurnRow } from '../../catalog/schema.ts';
import { isId } from '../../core/ids.ts';
import { authorizeSession, isTurnOf, requireTurn } from '../../engine/access.ts';
import { unlessUnreadable } from '../../engine/turn-log-reader.ts';
import { identifier } from '../../spec/bounds.ts';
import type { ApiContext } from '../http/context.ts';
import { invalidPageToken, positionOf, pageFrom, pageQuery, pageOf } from '../http/pagination.ts';
import type { Route } from '../http/route.ts';
import { exampleMessage, exampleTurn } from './examples.ts';
import { routesOf } from './route.ts';
import {
  entries,
  isOfOtherThread,
  threadQuery,
  turnEvents,
  turnEventsResponse,
  turnEventsQuery,
} from './turn-events.ts';
import { toWire } from './wire/events-to-wire.ts';
import { sessionEventItem } from './wire/resources.ts';
import { viewQuery } from './wire/view.ts';

const route = routesOf('Events');

const sessionQuery = pageQuery({ defaultLimit: 100, maxLimit: 1000 }).extend({
  last_turn_id: identifier.optional(),
  ...threadQuery,
  ...viewQuery,
});
const sessionPosition = z.object({ turn: z.string().refine(isId), ordinal: z.int().min(1) });

/** Lists of the events of a turn and of a session. */
export function eventRoutes(context: ApiContext): Route[] {
  const { catalog, logs, turnIndex, log } = context;
  return [
    route('get', '/v1/agents/sessions/:session_id/turns/:turn_id/events', {
      id: 'listTurnEvents',
      summary: 'The events of a turn, folded',
      description: 'Without `turn.created`, `turn.done` and deltas; also available while the turn runs.',
      query: turnEventsQuery,
      response: turnEventsResponse,
      handler: async ({ params: { session_id: sessionId, turn_id: turnId }, query, caller }) => {
        const session = await authorizeSession(catalog, sessionId, caller, 'read');
        await requireTurn(context, session, turnId);
        return turnEvents(context, turnId, query, readerOf(caller, session));
      },
    }),
    route('get', '/v1/agents/sessions/:session_id/events', {
      id: 'listSessionEvents',
      summary: 'The events of a session, newest first',
      description: 'The events of its last turn and of the turns before it; a running turn is left out.',
      query: sessionQuery,
      response: pageOf(sessionEventItem, [{ turn_id: exampleTurn.id, event: exampleMessage }], 100),
      errors: ['turn_not_found'],
      handler: async ({ params, query, caller }) => {
        const { limit, view, page_token: token, last_turn_id: lastTurnId, thread_id: threadId } = query;
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        const first = positionOf(sessionPosition, token);
        if (lastTurnId !== undefined && !first) await requireTurn(context, session, lastTurnId);
        const turn = first ? await catalog.turns.get(first.turn) : await newestEnded(session.id, lastTurnId);
        if (first && !isTurnOf(session, turn)) throw invalidPageToken();
        const reader = readerOf(caller, session);
        async function* listing() {
          for (let one = turn; one; one = await before(one)) {
            const from = one === turn ? first?.ordinal : undefined;
            const options = { fromOrdinal: from, limit, order: 'desc' as const, view, isOneOfSeveral: true };
            for await (const { ordinal, record } of entries(context, one.id, options)) {
              const position = { turn: one.id, ordinal } satisfies z.infer<typeof sessionPosition>;
              const event = toWire(record, reader, view);
              yield { item: { turn_id: one.id, event }, position, isLeftOut: isOfOtherThread(event, threadId) };
            }
          }
        }
        return pageFrom(listing(), limit);
      },
    }),
  ];

  /** The first turn of the listing: the given or last one, or its parent if it is running. */
  async function newestEnded(sessionId: string, lastTurnId: string | undefined): Promise<TurnRow | undefined> {
    const last = lastTurnId === undefined ? await turnIndex.knownLast(sessionId) : await catalog.turns.get(lastTurnId);
    if (!last) return undefined;
    const { done } = (await unlessUnreadable(logs.firstAndLast(last.id), { log, turnId: last.id })) ?? {};
    return done ? last : before(last);
  }

  async function before({ previous_turn_id: id }: TurnRow): Promise<TurnRow | undefined> {
    return id === null ? undefined : catalog.turns.get(id);
  }
}
