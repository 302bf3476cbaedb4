import { z } from 'zod';
import { readerOf, type Reader } from '../../auth/rights.ts';
import type { TurnRow } from '../../catalog/schema.ts';
import type { LogEntry } from '../../core/records.ts';
import { ignoreUnreadable, unlessUnreadable } from '../../engine/turn-log-reader.ts';
import { identifier } from '../../spec/bounds.ts';
import { turnEvent, type TurnEvent } from './wire/events.ts';
import { toWire } from './wire/events-to-wire.ts';
import { sessionEventItem, type SessionEventItem } from './wire/resources.ts';
import { isShown, viewQuery, type View } from './wire/view.ts';
import type { ApiContext } from '../http/context.ts';
import { exampleMessage, examplePage, exampleTurn } from './examples.ts';
import { isId } from '../../core/ids.ts';
import { authorizeSession, hasTurn, isTurnOf, requireTurn } from '../../engine/access.ts';
import { authorizeRun, runNotFound } from '../../engine/runs.ts';
import { Page, invalidPageToken, decodePageToken, order, pageQuery, pagination, pageOf } from '../http/pagination.ts';
import { json, route, type Route } from '../http/route.ts';

const turnQuery = pageQuery({ defaultLimit: 25, maxLimit: 1000 }).extend({
  order: order.default('asc'),
  ...viewQuery,
});
const turnPlace = z.object({ turn: z.string(), order, ordinal: z.int().min(1) });

const sessionQuery = pageQuery({ defaultLimit: 100, maxLimit: 1000 }).extend({
  last_turn_id: identifier.optional(),
  ...viewQuery,
});
const sessionPlace = z.object({ turn: z.string().refine(isId), ordinal: z.int().min(1) });

/** Entries per read: most of the largest ones have 250 KB each. */
const MAX_BATCH_SIZE = 100;

interface EntryOptions {
  /** The first ordinal, from a page token; undefined for the first page. */
  place: number | undefined;
  limit: number;
  order: 'asc' | 'desc';
  view: View;
  /** The turn has no entries if it no longer exists, or cannot be read: the others are shown. */
  isOneOfSeveral?: boolean;
}

/** Lists of the events of a turn and of a session. */
export function eventRoutes(context: ApiContext): Route[] {
  const { catalog, logs, turnIndex, log } = context;
  return [
    route(
      'get',
      '/v1/agents/sessions/:session_id/turns/:turn_id/events',
      {
        id: 'listTurnEvents',
        tag: 'Events',
        summary: 'The events of a turn, folded',
        description: 'Without `turn.created`, `turn.done` and deltas; also available while the turn runs.',
        query: turnQuery,
        answer: json(pageOf(turnEvent), { data: [exampleMessage], pagination: examplePage(25) }),
        errors: ['invalid_page_token', 'session_not_found', 'turn_not_found'],
      },
      async ({ params: { session_id: sessionId, turn_id: turnId }, query, caller }) => {
        const session = await authorizeSession(catalog, sessionId, caller, 'read');
        await requireTurn(context, session, turnId);
        return turnEvents(turnId, query, readerOf(caller, session));
      },
    ),
    route(
      'get',
      '/v1/runs/:run_id/events',
      {
        id: 'listRunEvents',
        tag: 'Runs',
        summary: 'The log of a run: its model calls, its tool calls and its sub-agents',
        description: 'Has the events of a turn, in the form of the Sessions API.',
        query: turnQuery,
        answer: json(pageOf(turnEvent), { data: [exampleMessage], pagination: examplePage(25) }),
        errors: ['invalid_page_token', 'run_not_found'],
      },
      async ({ params, query, caller }) => {
        const { session, turnId, runId, reader } = await authorizeRun(catalog, params.run_id, caller, 'read');
        if (!(await hasTurn(context, session, turnId))) throw runNotFound(runId);
        return turnEvents(turnId, query, reader);
      },
    ),
    route(
      'get',
      '/v1/agents/sessions/:session_id/events',
      {
        id: 'listSessionEvents',
        tag: 'Events',
        summary: 'The events of a session, newest first',
        description: 'The events of its last turn and of the turns before it; a running turn is left out.',
        query: sessionQuery,
        answer: json(pageOf(sessionEventItem), {
          data: [{ turn_id: exampleTurn.id, event: exampleMessage }],
          pagination: examplePage(100),
        }),
        errors: ['invalid_page_token', 'session_not_found', 'turn_not_found'],
      },
      async ({ params, query: { limit, view, page_token: token, last_turn_id: lastTurnId }, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        const place = token === undefined ? undefined : decodePageToken(sessionPlace, token);
        if (lastTurnId !== undefined && !place) await requireTurn(context, session, lastTurnId);
        const turn = place ? await catalog.turns.get(place.turn) : await newestEnded(session.id, lastTurnId);
        if (place && !isTurnOf(session, turn)) throw invalidPageToken();
        const { items, next } = await sessionPage(
          turn,
          { place: place?.ordinal, limit, view },
          readerOf(caller, session),
        );
        return { data: items, pagination: pagination(limit, next) };
      },
    ),
  ];

  async function turnEvents(turnId: string, query: z.output<typeof turnQuery>, reader: Reader) {
    const { limit, order, view, page_token: token } = query;
    const place = token === undefined ? undefined : decodePageToken(turnPlace, token);
    if (place && (place.turn !== turnId || place.order !== order)) throw invalidPageToken();
    const { items, next } = await turnPage(turnId, { place: place?.ordinal, limit, order, view }, reader);
    return { data: items, pagination: pagination(limit, next) };
  }

  /** The events of a turn, without `turn.created` and `turn.done`. */
  async function turnPage(
    turnId: string,
    options: EntryOptions,
    reader: Reader,
  ): Promise<{ items: TurnEvent[]; next: z.infer<typeof turnPlace> | undefined }> {
    const page = new Page<TurnEvent>(options.limit);
    for await (const { ordinal, record } of entries(turnId, options)) {
      const event = toWire(record, reader, options.view);
      if (event.type === 'turn.created' || event.type === 'turn.done') continue;
      if (!page.add(event)) return { items: page.items, next: { turn: turnId, order: options.order, ordinal } };
    }
    return { items: page.items, next: undefined };
  }

  async function sessionPage(
    newest: TurnRow | undefined,
    { place, limit, view }: Omit<EntryOptions, 'order'>,
    reader: Reader,
  ): Promise<{ items: SessionEventItem[]; next: z.infer<typeof sessionPlace> | undefined }> {
    const page = new Page<SessionEventItem>(limit);
    for (let turn = newest; turn; turn = await before(turn)) {
      const { id } = turn;
      const from = turn === newest ? place : undefined;
      const options = { place: from, limit, order: 'desc' as const, view, isOneOfSeveral: true };
      for await (const { ordinal, record } of entries(id, options)) {
        const item = { turn_id: id, event: toWire(record, reader, view) };
        if (!page.add(item)) return { items: page.items, next: { turn: id, ordinal } };
      }
    }
    return { items: page.items, next: undefined };
  }

  /**
   * The entries of a turn, read as they are consumed.
   * @throws ApiError if there is no entry at `place`: it is not from a page token of this listing
   */
  async function* entries(
    turnId: string,
    { place, limit, order, view, isOneOfSeveral }: EntryOptions,
  ): AsyncGenerator<LogEntry> {
    // Three more than the limit: the first and the last entry of the turn, and one that shows whether there is a next page.
    const batch = Math.min(limit + 3, MAX_BATCH_SIZE);
    const batches =
      order === 'asc'
        ? logs.read(turnId, { from: place ?? 1 })
        : logs.readBackwards(turnId, { from: place ?? Infinity, batch });
    let isFound = place === undefined;
    for await (const entries of isOneOfSeveral ? ignoreUnreadable(batches, { log, turnId }) : batches) {
      for (const entry of entries) {
        isFound ||= entry.ordinal === place;
        if (!isFound) throw invalidPageToken();
        if (isShown(entry.record, view)) yield entry;
      }
    }
    if (!isFound) throw invalidPageToken();
  }

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
