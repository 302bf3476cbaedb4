import type { IRouter, Request, Response } from 'express';
import { z } from 'zod';
import type { SessionRow } from '../catalog/schema.ts';
import { BEGINNING, parseCursor, type Cursor } from '../log/ordinals.ts';
import type { TurnCreated, TurnDone } from '../log/records.ts';
import { inputToWire, stateToWire, subjectToWire } from '../wire/project.ts';
import { subscribeBody, type TurnResource } from '../wire/resources.ts';
import type { ApiContext } from './context.ts';
import { readTurnRequest, type TurnRequest } from './create-turn.ts';
import { isId } from './ids.ts';
import { isTurnOf, ownTurn } from './own-turn.ts';
import { badToken, decodePageToken, pageQuery, pagination } from './page-token.ts';
import { contextOf, param, parse, parseQuery } from './request.ts';
import { route } from './routes.ts';
import { ownSession } from './sessions.ts';
import { EventStream } from './sse.ts';
import { badCursor, streamTurn } from './turn-stream.ts';

const listQuery = pageQuery({ defaultLimit: 10, maxLimit: 25 });
const place = z.object({ turn: z.string().refine(isId) });

/** `/v1/agents/sessions/{sid}/turns`: for sessions and drafts alike. */
export function turnRoutes(router: IRouter, context: ApiContext): void {
  const { catalog, logs, turnIndex, tails } = context;
  const sessionOf = async (request: Request, response: Response): Promise<SessionRow> =>
    ownSession(catalog, param(request, 'sid'), contextOf(response).subject);

  route(router, '/v1/agents/sessions/:sid/turns', {
    get: async (request, response) => {
      const session = await sessionOf(request, response);
      const { limit, page_token: token } = parseQuery(listQuery, request);
      const from = token === undefined ? (await turnIndex.last(session.id))?.id : decodePageToken(place, token).turn;
      const chain = from === undefined ? [] : await catalog.turns.chain(from, limit + 1);
      if (token !== undefined && !isTurnOf(session, chain[0])) throw badToken();
      const turns = await Promise.all(chain.slice(0, limit).map(async ({ id }) => turnResource(await logs.ends(id))));
      const next = chain[limit];
      response.json({ data: turns, pagination: pagination(limit, next && { turn: next.id }) });
    },
    post: async (request, response) => {
      const session = await sessionOf(request, response);
      const turn = await readTurnRequest(context, { request, session, subject: contextOf(response).subject });
      try {
        // Not by `Accept`: the Python SDK sends `*/*` either way.
        if (turn.stream) await startAndStream(turn, response);
        else await startOnly(turn, response);
      } finally {
        await turn.over();
      }
    },
  });

  route(router, '/v1/agents/sessions/:sid/turns/:tid', {
    get: async (request, response) => {
      const session = await sessionOf(request, response);
      const turnId = param(request, 'tid');
      await ownTurn(context, session, turnId);
      response.json({ data: turnResource(await logs.ends(turnId)) });
    },
  });

  route(router, '/v1/agents/sessions/:sid/turns/:tid/subscribe', {
    post: async (request, response) => {
      const session = await sessionOf(request, response);
      const turnId = param(request, 'tid');
      const cursor = cursorOf(request);
      await ownTurn(context, session, turnId);
      await streamTurn({ context, turnId, cursor, stream: new EventStream(response) });
    },
  });

  async function startAndStream(turn: TurnRequest, response: Response): Promise<void> {
    const { turnId } = turn;
    // Listens before the turn begins, so that its first words are not missed.
    const lease = tails.lease(turnId);
    const stream = new EventStream(response);
    stream.onDelivered(turn.delivered);
    try {
      await turn.start();
      await streamTurn({ context, turnId, cursor: BEGINNING, stream, lease });
    } finally {
      lease.release();
    }
  }

  async function startOnly(turn: TurnRequest, response: Response): Promise<void> {
    const created = await turn.start();
    const ends = created ? { created, done: undefined } : await logs.ends(turn.turnId);
    if (await isSent(response, { data: turnResource(ends) })) turn.delivered();
  }
}

/** Answers with JSON. False if it could not be given to the network any more. */
async function isSent(response: Response, body: object): Promise<boolean> {
  if (response.closed) return false;
  const { promise, resolve } = Promise.withResolvers<boolean>();
  response.once('finish', () => resolve(true)).once('close', () => resolve(false));
  response.json(body);
  return promise;
}

/** Where a reader goes on: the body says it, else `Last-Event-ID`. @throws ApiError `invalid_cursor` */
function cursorOf(request: Request): Cursor {
  // The body is optional here.
  const { after_sequence_number: after } = parse(subscribeBody, request.body ?? {});
  const header = request.get('last-event-id')?.trim();
  if (typeof after !== 'number' && !header) return BEGINNING;
  if (typeof after !== 'number' && !/^\d{1,16}$/.test(header ?? '')) throw badCursor();
  const cursor = parseCursor(after ?? Number(header));
  if (!cursor) throw badCursor();
  return cursor;
}

function turnResource({ created, done }: { created: TurnCreated; done: TurnDone | undefined }): TurnResource {
  return {
    id: created.turnId,
    session_id: created.sessionId,
    previous_turn_id: created.previousTurnId,
    input: inputToWire(created.input, created.sessionId),
    state: done ? stateToWire(done) : { status: 'running' },
    created_by_subject: subjectToWire(created.createdBy),
    created_at: created.at,
  };
}
