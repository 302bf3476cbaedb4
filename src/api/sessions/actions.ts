import { z } from 'zod';
import { deciderOf, type Reader } from '../../auth/rights.ts';
import type { ActionEvent } from '../../features/inbox/action-rows.ts';
import type { Caller } from '../../core/subject.ts';
import { isId } from '../../core/ids.ts';
import { wholeArguments } from '../../features/inbox/action-changes.ts';
import { hashOf } from '../../lib/hash.ts';
import { identifier } from '../../spec/bounds.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { EventStream, type ServerSentEvent } from '../http/event-stream.ts';
import { order, pageOf, pageOfRows, pageQuery, positionOf } from '../http/pagination.ts';
import { dataOf, json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { exampleAction, exampleActionEvent } from './examples.ts';
import { actionEvent, actionResource, actionToResource, serverSentActionEvent } from './wire/actions.ts';
import type { WireActionEvent } from './wire/actions.ts';
import { lastEventId } from '../http/headers.ts';
import { SESSION_ERRORS } from './errors.ts';

const route = routesOf('Actions');

const LIMIT = 10;

/** An action of a sign-in is in the inbox of the session's owner alone: see `ownerGroup`. */
const INBOX: Reader = { isOwner: true };

const listQuery = pageQuery({ defaultLimit: LIMIT, maxLimit: 100 }).extend({
  status: z
    .enum(['pending', 'decided'], { error: 'must be pending or decided' })
    .default('pending')
    .describe('decided: all that are no longer pending'),
  agent_name: identifier.optional(),
  order: order.default('desc').describe('by requested_at'),
});

/** The position after the action with this time and id, in the list with this fingerprint. */
const position = z.object({
  list: z.string(),
  requested_at: z.iso.datetime({ precision: 3 }),
  id: z.string().refine(isId),
});

/** The inbox: the actions that the caller may decide, over all sessions. */
export function actionRoutes({ catalog, logs, metrics, streamLimits, actionFeed }: ApiContext): Route[] {
  return [
    route('get', '/v1/agents/actions', {
      id: 'listActions',
      summary: 'The actions that you may decide, newest first',
      description:
        'They are answered in a turn of their session, sign-ins at their `auth_url`; see the guide to approvals.',
      query: listQuery,
      response: pageOf(actionResource, [exampleAction], LIMIT),
      handler: async ({ query: { limit, page_token: token, order, status, agent_name: agentName }, caller }) => {
        const reader = deciderOf(caller);
        const list = hashOf({ ...reader, order, status, agentName: agentName ?? null });
        const after = positionOf(position, token, { list });
        const found = await catalog.actions.list({
          ...reader,
          settled: status === 'decided',
          agentName,
          order,
          after: after && { requestedAt: after.requested_at, id: after.id },
          limit: limit + 1,
        });
        return pageOfRows(found, limit, {
          toItem: (action) => actionToResource(action, INBOX),
          after: ({ id, requested_at }) => ({ list, requested_at, id }),
        });
      },
    }),
    route('get', '/v1/agents/actions/stream', {
      id: 'streamActions',
      summary: 'The changes of the actions that you may decide',
      description:
        'A server-sent event stream without an end. Without `Last-Event-ID` it starts now: open it, then list the ' +
        'pending actions. With one it continues after that event, however old it is.',
      headers: z.object(lastEventId),
      schemas: { ActionEvent: actionEvent },
      response: { written: { 'text/event-stream': json(serverSentActionEvent, exampleActionEvent) } },
      handler: async ({ headers, caller, request, response }) => {
        const newest = await catalog.actions.newest();
        const cursor = cursorOf(headers['Last-Event-ID'], newest);
        if (request.method === 'HEAD') return void response.type('text/event-stream').end();
        streamLimits.admit(caller, response);
        const stream = new EventStream(response, metrics);
        stream.open();
        // A client that is cut off before its first event continues from here.
        stream.setCursor(cursor);
        await follow(stream, cursor, caller);
        stream.end();
      },
    }),
    route('get', '/v1/agents/actions/:action_id', {
      id: 'getAction',
      summary: 'An action that you may decide, or could, with all arguments of its call',
      response: dataOf(actionResource, exampleAction),
      handler: async ({ params, caller }) => {
        const action = await catalog.actions.find(params.action_id, deciderOf(caller));
        if (!action) throw new ApiError(SESSION_ERRORS.action_not_found, 'there is no such action that you may decide');
        const whole = await wholeArguments(action, logs);
        return {
          data: actionToResource({ ...action, detail: action.detail && { ...action.detail, arguments: whole } }, INBOX),
        };
      },
    }),
  ];

  /** Sends the changes after a number at the reader's pace, until it disconnects. */
  async function follow(stream: EventStream, from: number, caller: Caller): Promise<void> {
    const { audiences, excluded } = deciderOf(caller);
    const groups = new Set(audiences);
    let wake: () => void = () => undefined;
    const unlisten = stream.onClosed(() => wake());
    const leave = actionFeed.open(() => wake());
    try {
      for (let cursor = from; !stream.isClosed;) {
        const { events, through } = await actionFeed.after(cursor);
        await stream.write(eventsFor(groups, excluded, events));
        cursor = Math.max(cursor, through);
        if (events.length > 0 || stream.isClosed || actionFeed.isBehind(cursor)) continue;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    } finally {
      unlisten();
      leave();
    }
  }
}

/** The events whose actions one of the groups may decide, without those that name the excluded group. */
function* eventsFor(groups: Set<string>, excluded: string, events: ActionEvent[]): Generator<ServerSentEvent> {
  for (const { sequence, type, action, audiences } of events) {
    if (audiences.some((one) => groups.has(one)) && !audiences.includes(excluded))
      yield { id: sequence, data: { type, action: actionToResource(action, INBOX) } satisfies WireActionEvent };
  }
}

/** @throws ApiError `invalid_cursor` */
function cursorOf(header: string | undefined, newest: number): number {
  const text = header?.trim() ?? '';
  if (text === '') return newest;
  const cursor = /^\d{1,16}$/.test(text) ? Number(text) : Infinity;
  if (cursor > newest)
    throw new ApiError('invalid_cursor', 'the cursor is not from this stream: start again without one');
  return cursor;
}
