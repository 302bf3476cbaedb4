import { z } from 'zod';
import { mayReadAll } from '../../auth/rights.ts';
import type { Caller } from '../../core/subject.ts';
import { firstOf, type SessionFilter, type SessionPage } from '../../catalog/sessions.ts';
import { SESSION_STATES } from '../../core/session-state.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { SHOWN_SESSIONS } from '../../catalog/session-types.ts';
import { hashOf } from '../../lib/hash.ts';
import { identifier } from '../../spec/bounds.ts';
import { anySessionResource, draftResource, SHOWN_SESSION_STATES, sessionResource } from './wire/resources.ts';
import type { ApiContext } from '../http/context.ts';
import { agentNotFound } from '../http/errors.ts';
import { exampleDraft, exampleSession } from './examples.ts';
import { createdAfter, createdQuery, pageOf, pageOfRows, positionAfter } from '../http/pagination.ts';
import type { Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import type { AnySessionResource } from './wire/resources.ts';
import { STATE_OF, toSessionOrDraft, toDraft, toSession, type SessionWithActions } from './wire/resources-to-wire.ts';

const route = routesOf('Sessions');
const draftRoute = routesOf('Draft sessions');

const LIMIT = 10;

const listQuery = createdQuery(LIMIT).extend({
  agent_name: identifier.optional(),
  state: z.enum(SHOWN_SESSION_STATES, { error: `must be one of ${SHOWN_SESSION_STATES.join(', ')}` }).optional(),
});

const slugFilter = { created_by_subject_slug: identifier.optional() };

const searchQuery = listQuery.extend({
  ...slugFilter,
  session_type: z.enum(['session', 'session/draft'], { error: 'must be session or session/draft' }).optional(),
  session_id: identifier.optional(),
  created_by_subject_id: identifier.optional(),
  created_by_subject_type: identifier.optional(),
});

const mixed = pageOf(anySessionResource, [exampleSession, exampleDraft], LIMIT);

/** The contents of a list: sessions of these types, either the caller's own or all that it may read. */
interface Listing<T> {
  types: readonly SessionRow['type'][];
  whose: 'own' | 'readable';
  toItem: (session: SessionWithActions) => T | Promise<T>;
}

type Query = z.output<typeof listQuery> & Partial<z.output<typeof searchQuery>>;

/**
 * Lists of sessions and drafts, ordered by creation. A page token is a position between two of them, not a count, so that
 * no session is skipped or repeated when others are created or deleted between two pages.
 */
export function sessionListRoutes({ catalog }: ApiContext): Route[] {
  return [
    route('get', '/v1/agents/sessions', {
      id: 'listSessions',
      summary: 'The sessions that you may read, newest first',
      description: 'A deleted agent still has its sessions; the name of an agent that never existed is an error.',
      query: listQuery.extend(slugFilter),
      response: pageOf(sessionResource, [exampleSession], LIMIT),
      errors: ['agent_not_found'],
      handler: async ({ query, caller }) => {
        const { agent_name: name } = query;
        if (name !== undefined && (await catalog.agents.versions(name, 'asc', undefined, 1)).length === 0) {
          throw agentNotFound(name);
        }
        return list(query, caller, { types: ['session'], whose: 'readable', toItem: toSession });
      },
    }),
    draftRoute('get', '/v1/agents/draft-sessions', {
      id: 'listDraftSessions',
      summary: 'Your drafts, newest first',
      query: listQuery,
      response: pageOf(draftResource, [exampleDraft], LIMIT),
      handler: async ({ query, caller }) =>
        list(query, caller, { types: ['session/draft'], whose: 'own', toItem: (draft) => toDraft(draft, catalog) }),
    }),
    route('get', '/v1/x/agents/owned-sessions', {
      id: 'listOwnedSessions',
      summary: 'Your sessions and drafts, newest first',
      query: listQuery,
      response: mixed,
      handler: async ({ query, caller }) => list(query, caller, { types: SHOWN_SESSIONS, whose: 'own', toItem }),
    }),
    route('get', '/v1/x/agents/search-sessions', {
      id: 'searchSessions',
      summary: 'Search the sessions and drafts that you may read',
      query: searchQuery,
      response: mixed,
      handler: async ({ query, caller }) => {
        const { session_type: type } = query;
        return list(query, caller, { types: type ? [type] : SHOWN_SESSIONS, whose: 'readable', toItem });
      },
    }),
  ];

  function toItem(session: SessionWithActions): Promise<AnySessionResource> {
    return toSessionOrDraft(session, catalog);
  }

  async function list<T>(query: Query, caller: Caller, { types, whose, toItem }: Listing<T>) {
    const { limit, page_token: token, order, ...filters } = query;
    const owner = whose === 'own' || !mayReadAll(caller) ? caller.subject.subjectId : undefined;
    const fingerprint = hashOf({ types, owner: owner ?? null, order, filters });
    const page: SessionPage = { order, after: createdAfter(token, fingerprint), limit: limit + 1 };
    const { created_by_subject_id: subjectId = owner, state } = filters;
    const filter: Omit<SessionFilter, 'type'> = {
      id: filters.session_id,
      agentName: filters.agent_name,
      subjectId,
      subjectType: filters.created_by_subject_type,
      subjectSlug: filters.created_by_subject_slug,
      from: filters.start_timestamp,
      to: filters.end_timestamp,
      ...(state && inState(state)),
    };
    // Sessions of other subjects do not exist for this caller.
    const listed = owner !== undefined && subjectId !== owner ? [] : types;
    const lists = await Promise.all(listed.map((type) => catalog.sessions.list({ ...filter, type }, page)));
    const found = firstOf(lists.flat(), page);
    const waiting = await catalog.actions.pendingOf(found.map(({ id }) => id));
    return pageOfRows<SessionRow, T>(found, limit, {
      toItem: (session) => toItem({ session, waiting: waiting.get(session.id) ?? [] }),
      after: (last) => positionAfter(last, fingerprint),
    });
  }
}

/** The sessions that this API shows in a state. */
function inState(state: (typeof SHOWN_SESSION_STATES)[number]): Pick<SessionFilter, 'states' | 'isClosed'> {
  if (state === 'closed') return { isClosed: true };
  return { isClosed: false, states: SESSION_STATES.filter((one) => STATE_OF[one] === state) };
}
