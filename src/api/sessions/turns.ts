import { z } from 'zod';
import { unlessUnreadable } from '../../engine/turn-log-reader.ts';
import { numberedStreamEvent, serverSentEvent } from './wire/events.ts';
import { afterSequenceNumber, idempotencyKey, lastEventId } from '../http/headers.ts';
import { actionsBody, createTurnBody } from './wire/input.ts';
import { acceptedAnswers, subscribeBody, turnResource } from './wire/resources.ts';
import { viewQuery } from './wire/view.ts';
import type { ApiContext } from '../http/context.ts';
import { exampleServerSentEvent, exampleTurn } from './examples.ts';
import { isId } from '../../core/ids.ts';
import { mayOnSession, readerOf } from '../../auth/rights.ts';
import { authorizeSession, isTurnOf, requireTurn } from '../../engine/access.ts';
import { sessionWithAnswers } from '../../features/inbox/session-now.ts';
import { invalidPageToken, positionOf, pageQuery, pagination, pageOf } from '../http/pagination.ts';
import { dataOf, json, type Route } from '../http/route.ts';
import { cancelTurns } from '../../engine/engine.ts';
import { answerCalls, waitingNow } from '../../engine/answer-calls.ts';
import { byKey } from '../../engine/request-claims.ts';
import { routesOf } from './route.ts';
import { respondWithTurn } from './create-turn.ts';
import { turnResourceOf } from './turn-resource.ts';
import { toTurnResource } from './wire/resources-to-wire.ts';
import { MAX_QUEUED } from '../../core/turn-queue.ts';
import { remembering } from './remembering.ts';
import { rulesIn, toAnswer } from './turn-input.ts';
import { EventStream } from '../http/event-stream.ts';
import { cursorOf, cursorOfEventSource, streamTurn } from '../http/turn-stream.ts';
import { TurnEventReader } from './turn-event-reader.ts';

const route = routesOf('Turns');

const listQuery = pageQuery({ defaultLimit: 10, maxLimit: 25 });
const position = z.object({ turn: z.string().refine(isId) });

const turn = dataOf(turnResource, exampleTurn);
// In OpenAPI 3.1 a stream is described by the schema of one event.
const stream = json(serverSentEvent, exampleServerSentEvent);
const withView = z.object(viewQuery);
const schemas = { StreamEvent: numberedStreamEvent };

/** `/v1/agents/sessions/{session_id}/turns`: for sessions and drafts alike. */
export function turnRoutes(context: ApiContext): Route[] {
  const { catalog, logs, turnIndex, metrics, streamLimits, client, log } = context;
  return [
    route('get', '/v1/agents/sessions/:session_id/turns', {
      id: 'listTurns',
      summary: 'The turns of a session, newest first',
      description: 'The last turn, the one that it continues, and so on.',
      query: listQuery,
      response: pageOf(turnResource, [exampleTurn], 10),
      handler: async ({ params, query: { limit, page_token: token }, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        const from = positionOf(position, token)?.turn ?? (await turnIndex.knownLast(session.id))?.id;
        const chain = from === undefined ? [] : await catalog.turns.chain(from, limit + 1);
        if (token !== undefined && !isTurnOf(session, chain[0])) throw invalidPageToken();
        const turns = await Promise.all(
          chain.slice(0, limit).map(({ id }) => unlessUnreadable(logs.firstAndLast(id), { log, turnId: id })),
        );
        const reader = readerOf(caller, session);
        const data = await Promise.all(turns.flatMap((one) => (one ? [turnResourceOf(client, one, reader)] : [])));
        const next = chain[limit];
        return { data, pagination: pagination(limit, next && { turn: next.id }) };
      },
    }),
    route('post', '/v1/agents/sessions/:session_id/turns', {
      id: 'createTurn',
      handlesRateLimit: true,
      largeBody: true,
      stores: true,
      summary: 'Start a turn',
      description:
        'Answers with the stream of the turn, or with `stream: false` at once with the turn. The turn continues when the ' +
        'client disconnects. By default it cancels the running turn, which requires the right to cancel. With `on_running: "steer"` the running turn ' +
        'gets the messages, and the answer is that turn.',
      query: withView,
      headers: z.object(idempotencyKey),
      body: json(createTurnBody, { input: [{ type: 'user.message', content: 'Which orders are late?' }] }),
      schemas,
      response: { written: { 'text/event-stream': stream, 'application/json': turn } },
      errors: [
        'forbidden',
        'not_an_approver',
        'invalid_data_uri',
        'mixed_input',
        'turn_not_found',
        'turn_running',
        'queue_full',
        'session_closed',
        'request_expired',
        'empty_message',
        'messages_required',
        'too_many_messages',
        'actions_pending',
        'call_not_pending',
        'call_answered_twice',
        'calls_unanswered',
        'invalid_answer',
        'invalid_arguments',
        'edit_not_allowed',
        'invalid_rule',
        'remember_not_allowed',
        'invalid_agent',
        'feature_not_available',
        'idempotency_key_reused',
        'content_too_large',
        'file_unavailable',
        'too_many_turns',
      ],
      handler: async ({ params, query, headers, body, ...call }) => {
        if (body.stream !== false) streamLimits.admit(call.caller, call.response);
        await respondWithTurn(context, {
          ...call,
          sessionId: params.session_id,
          key: headers['Idempotency-Key'],
          body,
          view: query.view,
        });
      },
    }),
    route('post', '/v1/agents/sessions/:session_id/actions', {
      id: 'answerCalls',
      summary: 'Answer tool calls that wait in the running turn, or on the ended one',
      description:
        'Takes any part of what waits, from several people; either all of the answers apply or none. The response is ' +
        'sent once they are recorded: by the turn, if it waits (`pause: "wait"`), else with the session, and the last ' +
        'one starts the turn that has all of them as its input. A repeated answer changes nothing, and is named as such.',
      largeBody: true,
      headers: z.object(idempotencyKey),
      body: json(actionsBody, {
        input: [
          { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'call_1', approval: { status: 'allow' } },
        ],
      }),
      response: dataOf(acceptedAnswers, { accepted: ['call_1'], waiting: ['call_2'] }),
      errors: [
        'forbidden',
        'not_an_approver',
        'session_closed',
        'request_expired',
        'invalid_agent',
        'feature_not_available',
        'idempotency_key_reused',
        'too_many_turns',
        'nothing_pending',
        'already_decided',
        'invalid_answer',
        'invalid_arguments',
        'edit_not_allowed',
        'invalid_rule',
        'remember_not_allowed',
        'call_not_pending',
        'call_answered_twice',
        'content_too_large',
      ],
      handler: async ({ params, headers, body, caller }) => {
        const session = await sessionWithAnswers(catalog, params.session_id, caller);
        const answers = body.input.map(toAnswer);
        const { id: sessionId } = session;
        const key = headers['Idempotency-Key'];
        const request = { catalog, caller, resource: `answers/${sessionId}`, key, body, sessionId };
        const { turnId, repeated, ...data } = await byKey(request, ({ isNew }) => {
          const rules = isNew ? rulesIn(body.input) : [];
          const waiting = () => waitingNow(context, session);
          return remembering(context, { session, caller, rules, waiting }, async (add) => {
            await add();
            // The same key makes it a repetition, even if a call that the first request allowed needs approval again.
            return answerCalls(context, { session, caller, answers, isRepetition: !isNew });
          });
        });
        // Callers who may not read the session cannot use the id of its turn.
        const isShown = turnId !== undefined && mayOnSession(caller, session, 'read');
        return { data: { ...data, ...(repeated.length > 0 && { repeated }), ...(isShown && { turn_id: turnId }) } };
      },
    }),
    route('get', '/v1/agents/sessions/:session_id/turns/:turn_id', {
      id: 'getTurn',
      summary: 'A turn with its state',
      response: turn,
      handler: async ({ params: { session_id: sessionId, turn_id: turnId }, caller }) => {
        const session = await authorizeSession(catalog, sessionId, caller, 'read');
        await requireTurn(context, session, turnId);
        return { data: await turnResourceOf(client, await logs.firstAndLast(turnId), readerOf(caller, session)) };
      },
    }),
    route('post', '/v1/agents/sessions/:session_id/turns/:turn_id/cancel', {
      id: 'cancelTurn',
      summary: 'Cancel a turn that runs, or waits in the queue',
      description: 'Its events so far are kept. Without effect on a turn that has ended.',
      response: json(z.object({}), {}),
      errors: ['forbidden'],
      handler: async ({ params: { session_id: sessionId, turn_id: turnId }, caller }) => {
        const session = await authorizeSession(catalog, sessionId, caller, 'cancel');
        await requireTurn(context, session, turnId);
        await cancelTurns(context, session, { turnId });
        return {};
      },
    }),
    route('post', '/v1/agents/sessions/:session_id/turns/:turn_id/subscribe', {
      id: 'subscribeToTurn',
      summary: 'The stream of a turn from a cursor on',
      description:
        'For running and ended turns, without a time limit. Without a cursor the stream starts at the beginning. The ' +
        'body takes precedence over `Last-Event-ID`.',
      query: withView,
      headers: z.object(lastEventId),
      body: json(subscribeBody.optional(), { after_sequence_number: 1_000_002 }),
      schemas,
      response: { written: { 'text/event-stream': stream } },
      handler: async ({ params, query: { view }, headers, body, caller, response }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        const cursor = cursorOf(body?.after_sequence_number ?? undefined, headers['Last-Event-ID']);
        await requireTurn(context, session, params.turn_id);
        streamLimits.admit(caller, response);
        const stream = new EventStream(response, metrics);
        const reader = new TurnEventReader({ cursor, stream, view, reader: readerOf(caller, session) });
        await streamTurn({ context, turnId: params.turn_id, reader });
      },
    }),
    route('get', '/v1/agents/sessions/:session_id/turns/:turn_id/stream', {
      id: 'streamTurn',
      summary: 'The stream of a turn from a cursor on, for EventSource',
      description:
        'Like `subscribe`, by GET. An EventSource reconnects after the end of the stream with the number of ' +
        '`turn.done`, and the answer 204 stops it.',
      query: withView.extend(afterSequenceNumber),
      headers: z.object(lastEventId),
      schemas,
      response: { written: { 'text/event-stream': stream } },
      noContent: 'the turn has ended, and the cursor is at its end',
      handler: async ({ params, query, headers, caller, request, response }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        const cursor = cursorOfEventSource(headers, query.after_sequence_number);
        await requireTurn(context, session, params.turn_id);
        if (request.method === 'HEAD') return void response.type('text/event-stream').end();
        streamLimits.admit(caller, response);
        const stream = new EventStream(response, metrics);
        const reader = new TurnEventReader({ cursor, stream, view: query.view, reader: readerOf(caller, session) });
        await streamTurn({ context, turnId: params.turn_id, reader, endsWithNothing: true });
      },
    }),
    route('get', '/v1/agents/sessions/:session_id/queue', {
      id: 'listQueue',
      summary: 'The turns that wait in the queue of a session, in their order',
      description: `All of them, on one page: at most ${MAX_QUEUED} can wait. Each is cancelled by its id.`,
      response: pageOf(
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
        // The turns without a position have begun or ended meanwhile.
        const waiting = turns.flatMap((turn) => (turn?.position === undefined ? [] : [toTurnResource(turn, reader)]));
        return { data: waiting, pagination: pagination(MAX_QUEUED, undefined) };
      },
    }),
  ];
}
