import type { IRouter } from 'express';
import { z } from 'zod';
import type { TurnRow } from '../catalog/schema.ts';
import { toWire } from '../wire/project.ts';
import type { SessionEventItem } from '../wire/resources.ts';
import type { ApiContext } from './context.ts';
import { badToken, decodePageToken, pageQuery, pagination } from './page-token.ts';
import { contextOf, param, parse } from './request.ts';
import { route } from './routes.ts';
import { ownSession } from './sessions.ts';
import { ownTurn } from './turns.ts';

const turnQuery = pageQuery({ defaultLimit: 25, maxLimit: 1000 }).extend({
  order: z.enum(['asc', 'desc'], { error: 'must be asc or desc' }).default('asc'),
});
const turnPlace = z.object({ turn: z.string(), order: z.enum(['asc', 'desc']), ordinal: z.int().min(1) });

const sessionQuery = pageQuery({ defaultLimit: 100, maxLimit: 1000 }).extend({
  last_turn_id: z.string().min(1).optional(),
});
const sessionPlace = z.object({ turn: z.string(), ordinal: z.int().min(1) });

/** The events of a turn, and of a whole session, as lists. */
export function eventRoutes(router: IRouter, context: ApiContext): void {
  const { catalog, logs, turnIndex } = context;

  route(router, '/v1/agents/sessions/:sid/turns/:tid/events', {
    get: async (request, response) => {
      const session = await ownSession(catalog, param(request, 'sid'), contextOf(response).subject);
      const turnId = param(request, 'tid');
      const { limit, order, page_token: token } = parse(turnQuery, request.query);
      await ownTurn(context, session, turnId);
      const from = token === undefined ? undefined : decodePageToken(turnPlace, token);
      if (from && (from.turn !== turnId || from.order !== order)) throw badToken();
      const start = from?.ordinal ?? (order === 'asc' ? 1 : Number.MAX_SAFE_INTEGER);
      // Two more than asked for: the turn's begin and end are not listed, and one says whether there is a next page.
      const entries = await logs.page(turnId, { from: start, limit: limit + 3, order });
      const listed = entries.filter(({ record }) => record.kind !== 'turn.created' && record.kind !== 'turn.done');
      const next = listed[limit];
      response.json({
        data: listed.slice(0, limit).map(({ record }) => toWire(record)),
        pagination: pagination(limit, next && { turn: turnId, order, ordinal: next.ordinal }),
      });
    },
  });

  route(router, '/v1/agents/sessions/:sid/events', {
    get: async (request, response) => {
      const session = await ownSession(catalog, param(request, 'sid'), contextOf(response).subject);
      const { limit, page_token: token, last_turn_id: lastTurnId } = parse(sessionQuery, request.query);
      const from = token === undefined ? undefined : decodePageToken(sessionPlace, token);
      if (lastTurnId !== undefined && !from) await ownTurn(context, session, lastTurnId);
      const turn = from ? await catalog.turns.get(from.turn) : await newestEnded(session.id, lastTurnId);
      if (from && turn?.session_id !== session.id) throw badToken();
      const { items, next } = await newestFirst(turn, from?.ordinal ?? Number.MAX_SAFE_INTEGER, limit);
      response.json({ data: items, pagination: pagination(limit, next) });
    },
  });

  /** The turn that the listing begins with: a running one is left out, its parent stands for it. */
  async function newestEnded(sessionId: string, lastTurnId: string | undefined): Promise<TurnRow | undefined> {
    const last = lastTurnId === undefined ? await turnIndex.last(sessionId) : await catalog.turns.get(lastTurnId);
    if (!last) return undefined;
    const { done } = await logs.ends(last.id);
    if (done) return last;
    return last.previous_turn_id === null ? undefined : catalog.turns.get(last.previous_turn_id);
  }

  async function newestFirst(
    newest: TurnRow | undefined,
    from: number,
    limit: number,
  ): Promise<{ items: SessionEventItem[]; next: z.infer<typeof sessionPlace> | undefined }> {
    const items: SessionEventItem[] = [];
    let turn = newest;
    let ordinal = from;
    while (turn) {
      const { id } = turn;
      const entries = await logs.page(id, { from: ordinal, limit: limit - items.length + 1, order: 'desc' });
      for (const { ordinal: at, record } of entries) {
        if (items.length === limit) return { items, next: { turn: id, ordinal: at } };
        items.push({ turn_id: id, event: toWire(record) });
      }
      turn = turn.previous_turn_id === null ? undefined : await catalog.turns.get(turn.previous_turn_id);
      ordinal = Number.MAX_SAFE_INTEGER;
    }
    return { items, next: undefined };
  }
}
