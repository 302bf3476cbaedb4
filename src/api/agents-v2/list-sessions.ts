import { mayReadAll } from '../../auth/rights.ts';
import type { ListedSession, SessionListFilter } from '../../features/agent-sessions/session-list.ts';
import type { Caller } from '../../core/subject.ts';
import { SESSION_STATES, type SessionState } from '../../core/session-state.ts';
import type { ApiContext } from '../http/context.ts';
import { json, type Route } from '../http/route.ts';
import { rowToWire } from '../http/wire-fields.ts';
import { routesOf } from './route.ts';
import { orderOf, rangeOf } from './catalog-queries.ts';
import { exampleSummary } from './examples.ts';
import { fromUuid, toUuid } from './session-ids.ts';
import { STATUS_OF } from './session-state.ts';
import type { SessionStatusName } from './wire/session.ts';
import {
  sessionListQuery,
  sessionPage,
  sessionSummary,
  type SessionListQuery,
  type SessionSummary,
} from './wire/list.ts';

const route = routesOf('Agent sessions');

/** How many of the first sessions that match the other filters are searched for a text. */
const MAX_SEARCHED = 500;

/** The list of sessions. */
export function sessionListRoutes({ catalog }: ApiContext): Route[] {
  return [
    route('get', '/api/v2/sessions', {
      id: 'listSessions',
      summary: 'The sessions that you may read',
      description:
        'Also those of the Sessions API, which wait for messages after each answer. A search looks at the first ' +
        `${MAX_SEARCHED} sessions that match the other parameters.`,
      query: sessionListQuery,
      response: json(sessionPage, { items: [exampleSummary], total: 1, page: 1 }),
      handler: async ({ query, caller }) => {
        const { page, size, search } = query;
        const listing = { filter: filterOf(query, caller), order: orderOf(query), now: new Date() };
        const slice = rangeOf(query);
        if (search === undefined) {
          const total = await catalog.sessionList.count(listing);
          return { items: (await catalog.sessionList.page(listing, slice)).map(summary), total, page };
        }
        const rows = await catalog.sessionList.page(listing, { offset: 0, limit: MAX_SEARCHED });
        const needle = search.toLowerCase();
        const hits = rows.filter(
          ({ firstMessage = '', lastAnswer = '' }) => has(firstMessage, needle) || has(lastAnswer, needle),
        );
        return { items: hits.slice(slice.offset, slice.offset + size).map(summary), total: hits.length, page };
      },
    }),
  ];
}

function summary({ firstMessage, state, ...row }: ListedSession): SessionSummary {
  return rowToWire(sessionSummary, {
    ...row,
    id: toUuid(row.id),
    status: STATUS_OF[state],
    agent_view_url: null,
    first_message:
      firstMessage === undefined ? null : { type: 'user_message', message: firstMessage, caller_id: 'user' },
    last_activity_at: row.active_at,
    anonymized_at: null,
  });
}

function filterOf(query: SessionListQuery, caller: Caller): SessionListFilter {
  const { owner, parent_session_id: parent } = query;
  const isOwn = owner === 'me' || owner === 'me-in-organization' || !mayReadAll(caller);
  return {
    subjectId: isOwn ? caller.subject.subjectId : undefined,
    groupId: query.group_id,
    parentId: parent === undefined ? undefined : fromUuid(parent, 'parent_session_id'),
    scheduleId: query.schedule_id,
    createdFrom: query.created_after,
    createdTo: query.created_before,
    agents: query.agent,
    states: query.status && statesOf(query.status),
    finishedFrom: query.finished_after,
    finishedTo: query.finished_before,
  };
}

function statesOf(statuses: readonly SessionStatusName[]): SessionState[] {
  return SESSION_STATES.filter((state) => statuses.includes(STATUS_OF[state]));
}

function has(text: string, needle: string): boolean {
  return text.toLowerCase().includes(needle);
}
