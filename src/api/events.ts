import { z } from 'zod';
import type { TurnRow } from '../catalog/schema.ts';
import type { LogEntry } from '../log/records.ts';
import { unlessGone, type PageOptions } from '../logs/turn-logs.ts';
import { identifier } from '../wire/bounds.ts';
import { turnEvent, type TurnEvent } from '../wire/events.ts';
import { toWire } from '../wire/project.ts';
import { pageOf, sessionEventItem, type SessionEventItem } from '../wire/resources.ts';
import type { ApiContext } from './context.ts';
import { exampleMessage, examplePage, exampleTurn } from './examples.ts';
import { isId } from './ids.ts';
import { isTurnOf, ownTurn } from './own-turn.ts';
import { Page } from './page.ts';
import { badToken, decodePageToken, order, pageQuery, pagination } from './page-token.ts';
import { json, route, type Route } from './routes.ts';
import { sessionFor } from './sessions.ts';

const turnQuery = pageQuery({ defaultLimit: 25, maxLimit: 1000 }).extend({
  order: order.default('asc'),
});
const turnPlace = z.object({ turn: z.string(), order, ordinal: z.int().min(1) });

const sessionQuery = pageQuery({ defaultLimit: 100, maxLimit: 1000 }).extend({ last_turn_id: identifier.optional() });
const sessionPlace = z.object({ turn: z.string().refine(isId), ordinal: z.int().min(1) });

/** Entries that are read at a time: the largest ones take a quarter of a megabyte each. */
const BATCH = 100;

/** The events of a turn, and of a whole session, as lists. */
export function eventRoutes(context: ApiContext): Route[] {
  const { catalog, logs, turnIndex } = context;
  return [
    route(
      'get',
      '/v1/agents/sessions/:session_id/turns/:turn_id/events',
      {
        id: 'listTurnEvents',
        tag: 'Events',
        summary: 'The events of a turn, folded',
        description: 'Without `turn.created`, `turn.done` and deltas. Also while the turn runs.',
        query: turnQuery,
        answer: json(pageOf(turnEvent), { data: [exampleMessage], pagination: examplePage(25) }),
        errors: ['invalid_page_token', 'session_not_found', 'turn_not_found'],
      },
      async ({ params: { session_id: sessionId, turn_id: turnId }, query, caller }) => {
        const session = await sessionFor(catalog, sessionId, caller, 'read');
        const { limit, order, page_token: token } = query;
        await ownTurn(context, session, turnId);
        const place = token === undefined ? undefined : decodePageToken(turnPlace, token);
        if (place && (place.turn !== turnId || place.order !== order)) throw badToken();
        if (place) await checkPlace(place);
        const from = place?.ordinal ?? (order === 'asc' ? 1 : Number.MAX_SAFE_INTEGER);
        const { items, next } = await turnPage(turnId, { from, limit, order });
        return { data: items, pagination: pagination(limit, next) };
      },
    ),
    route(
      'get',
      '/v1/agents/sessions/:session_id/events',
      {
        id: 'listSessionEvents',
        tag: 'Events',
        summary: 'The events of a session, newest first',
        description: 'Of its last turn and the turns before that; a turn that runs is left out.',
        query: sessionQuery,
        answer: json(pageOf(sessionEventItem), {
          data: [{ turn_id: exampleTurn.id, event: exampleMessage }],
          pagination: examplePage(100),
        }),
        errors: ['invalid_page_token', 'session_not_found', 'turn_not_found'],
      },
      async ({ params, query: { limit, page_token: token, last_turn_id: lastTurnId }, caller }) => {
        const session = await sessionFor(catalog, params.session_id, caller, 'read');
        const place = token === undefined ? undefined : decodePageToken(sessionPlace, token);
        if (lastTurnId !== undefined && !place) await ownTurn(context, session, lastTurnId);
        const turn = place ? await catalog.turns.get(place.turn) : await newestEnded(session.id, lastTurnId);
        if (place && !isTurnOf(session, turn)) throw badToken();
        if (place) await checkPlace(place);
        const { items, next } = await sessionPage(turn, place?.ordinal ?? Number.MAX_SAFE_INTEGER, limit);
        return { data: items, pagination: pagination(limit, next) };
      },
    ),
  ];

  /** A place that we gave out had an entry. */
  async function checkPlace({ turn, ordinal }: { turn: string; ordinal: number }): Promise<void> {
    const [entry] = await logs.page(turn, { from: ordinal, limit: 1, order: 'asc' });
    if (entry?.ordinal !== ordinal) throw badToken();
  }

  /** The events of a turn, without its begin and end. */
  async function turnPage(
    turnId: string,
    options: PageOptions,
  ): Promise<{ items: TurnEvent[]; next: z.infer<typeof turnPlace> | undefined }> {
    const { order } = options;
    const page = new Page<TurnEvent>(options.limit);
    // Three more than asked for: the begin, the end, and one that says whether there is a next page.
    for await (const { ordinal, record } of entries(turnId, { ...options, limit: options.limit + 3 })) {
      const event = toWire(record);
      if (event.type === 'turn.created' || event.type === 'turn.done') continue;
      if (!page.add(event)) return { items: page.items, next: { turn: turnId, order, ordinal } };
    }
    return { items: page.items, next: undefined };
  }

  async function sessionPage(
    newest: TurnRow | undefined,
    ordinal: number,
    limit: number,
  ): Promise<{ items: SessionEventItem[]; next: z.infer<typeof sessionPlace> | undefined }> {
    const page = new Page<SessionEventItem>(limit);
    let from = ordinal;
    for (let turn = newest; turn; turn = await before(turn)) {
      const { id } = turn;
      for await (const { ordinal: at, record } of unlessGone(entries(id, { from, limit: limit + 1, order: 'desc' }))) {
        const item = { turn_id: id, event: toWire(record) };
        if (!page.add(item)) return { items: page.items, next: { turn: id, ordinal: at } };
      }
      from = Number.MAX_SAFE_INTEGER;
    }
    return { items: page.items, next: undefined };
  }

  /** Entries of a turn, read as they are taken: those of a running one that are wanted last first, in batches. */
  async function* entries(turnId: string, { from, limit, order }: PageOptions): AsyncGenerator<LogEntry> {
    if (order === 'asc') {
      for await (const batch of logs.read(turnId, { from })) yield* batch;
      return;
    }
    const size = Math.min(limit, BATCH);
    for (let next = from; next > 0;) {
      const batch = await logs.page(turnId, { from: next, limit: size, order });
      yield* batch;
      const last = batch.at(-1);
      if (!last || batch.length < size) return;
      next = last.ordinal - 1;
    }
  }

  /** The turn that the listing begins with: a running one is left out, its parent stands for it. */
  async function newestEnded(sessionId: string, lastTurnId: string | undefined): Promise<TurnRow | undefined> {
    const last = lastTurnId === undefined ? await turnIndex.last(sessionId) : await catalog.turns.get(lastTurnId);
    if (!last) return undefined;
    const { done } = await logs.ends(last.id);
    return done ? last : before(last);
  }

  async function before({ previous_turn_id: id }: TurnRow): Promise<TurnRow | undefined> {
    return id === null ? undefined : catalog.turns.get(id);
  }
}
