import { mayReadAll } from '../../auth/rights.ts';
import type { ListedSession, SessionListFilter } from '../../catalog/session-list.ts';
import { LISTED_CHARACTERS } from '../../catalog/session-requests.ts';
import type { Caller } from '../../core/subject.ts';
import { EncryptionKeyMissing } from '../../encryption/cipher.ts';
import { unlessUnreadable, type TurnEnds } from '../../engine/turn-log-reader.ts';
import { isUnavailable } from '../../engine/unavailable.ts';
import type { ApiContext } from '../http/context.ts';
import { json, route, type Route } from '../http/route.ts';
import { exampleSummary } from './examples.ts';
import { stateNow, type SessionReader } from './read-session.ts';
import { fromUuid, toUuid } from './session-ids.ts';
import type { SessionState } from './session-state.ts';
import type { SessionStatusName } from './wire/session.ts';
import { sessionListQuery, sessionPage, type SessionListQuery, type SessionSummary } from './wire/list.ts';

/** The open sessions whose states are told apart for a filter, the newest; further ones count as running. */
const MAX_OPEN = 500;

/** The newest sessions that match the other filters, of which those with a text are sought. */
const MAX_SEARCHED = 500;

/** Sessions that are read at once. */
const READ_BATCH_SIZE = 20;

type State = Pick<SessionState, 'status' | 'finishedAt'>;

/** Nothing in the catalog says that it has ended. */
const UNREADABLE: State = { status: 'running', finishedAt: null };

interface Listing {
  filter: SessionListFilter;
  order: 'asc' | 'desc';
  now: Date;
}

/** The list of sessions. */
export function sessionListRoutes({ catalog, logs, log }: ApiContext, reader: SessionReader): Route[] {
  return [
    route(
      'get',
      '/api/v2/sessions',
      {
        id: 'listSessions',
        tag: 'Agent sessions',
        summary: 'The sessions that you may read',
        description:
          'Also those of the Sessions API, which wait for messages after each answer. A search looks at the first ' +
          `${MAX_SEARCHED} sessions that match the other parameters.`,
        query: sessionListQuery,
        answer: json(sessionPage, { items: [exampleSummary], total: 1, page: 1 }),
      },
      async ({ query, caller }) => {
        const { page, size, search } = query;
        const now = new Date();
        const listing = { filter: filterOf(query, caller), order: orderOf(query), now };
        const states = await statesOf(listing);
        const found = { ...listing, open: matching(states, listing.filter) };
        const slice = { offset: (page - 1) * size, limit: size };
        if (search === undefined) {
          const [total, rows] = [await catalog.sessionList.count(found), await catalog.sessionList.page(found, slice)];
          return { items: await inBatches(rows, (row) => summary(row, states)), total, page };
        }
        const rows = await catalog.sessionList.page(found, { offset: 0, limit: MAX_SEARCHED });
        const needle = search.toLowerCase();
        const isFound = await inBatches(rows, async (row) => (await textsOf(row)).some((text) => has(text, needle)));
        const hits = rows.filter((_, i) => isFound[i]);
        const items = await inBatches(hits.slice(slice.offset, slice.offset + size), (row) => summary(row, states));
        return { items, total: hits.length, page };
      },
    ),
  ];

  /** The states of the open sessions, if the filter needs them. */
  async function statesOf({ filter, ...listing }: Listing): Promise<Map<string, State>> {
    const { statuses, finishedFrom, finishedTo } = filter;
    if (!statuses && finishedFrom === undefined && finishedTo === undefined) return new Map();
    const ids = await catalog.sessionList.open({ filter, ...listing });
    const states = await inBatches(ids, async (id, i): Promise<[string, State]> => {
      const state = i < MAX_OPEN ? await stateOf(id) : undefined;
      return [id, state ?? UNREADABLE];
    });
    return new Map(states);
  }

  /** Undefined if it was deleted. One that cannot be read does not take the list with it. */
  async function stateOf(id: string): Promise<State | undefined> {
    const session = await catalog.sessions.get(id);
    try {
      return session && stateNow(await reader.read(session));
    } catch (error) {
      if (isUnavailable(error)) throw error;
      log.error({ sessionId: id, err: error }, 'a session that cannot be read is listed as running');
      return UNREADABLE;
    }
  }

  async function summary(row: ListedSession, states: Map<string, State>): Promise<SessionSummary> {
    const known = row.status === 'open' ? (states.get(row.id) ?? (await stateOf(row.id))) : undefined;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the states of the catalog are those of this API
    const status = known?.status ?? (row.status as SessionStatusName);
    const text = row.firstMessage ?? (await firstText(row));
    return {
      id: toUuid(row.id),
      agent: row.agent,
      agent_revision: row.agent_revision,
      status,
      agent_view_url: null,
      first_message:
        text === undefined
          ? null
          : { type: 'user_message', message: text.slice(0, LISTED_CHARACTERS), caller_id: 'user' },
      created_at: row.created_at,
      started_at: row.started_at,
      finished_at: known ? known.finishedAt : finishedAtOf(row),
      last_activity_at: row.active_at,
      anonymized_at: null,
    };
  }

  /** The first message and the last answer. */
  async function textsOf(row: ListedSession): Promise<string[]> {
    const last = row.started_at === null ? undefined : await catalog.turns.last(row.id);
    const ends = last && (await endsOf(last.id));
    const output = ends?.done?.end.status === 'done' ? ends.done.end.output : null;
    return [row.firstMessage ?? (await firstText(row)) ?? '', output?.content ?? '', output?.refusal ?? ''];
  }

  async function firstText(row: ListedSession): Promise<string | undefined> {
    if (row.started_at === null) return undefined;
    const [first] = await catalog.turns.after(row.id, 0, 1);
    const ends = first && (await endsOf(first.id));
    for (const item of ends?.created.input ?? []) {
      if (item.type !== 'user.message') continue;
      if (typeof item.content === 'string') return item.content;
      return item.content.map((part) => (part.type === 'text' ? part.text : '')).join('');
    }
    return undefined;
  }

  /** Undefined if the log was lost, or cannot be read: a session whose key is missing is listed without texts. */
  async function endsOf(turnId: string): Promise<TurnEnds | undefined> {
    try {
      return await unlessUnreadable(logs.firstAndLast(turnId), { log, turnId });
    } catch (error) {
      if (error instanceof EncryptionKeyMissing) return undefined;
      throw error;
    }
  }
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
    statuses: query.status,
    finishedFrom: query.finished_after,
    finishedTo: query.finished_before,
  };
}

function orderOf({ sort: [first] }: SessionListQuery): 'asc' | 'desc' {
  return first === 'created_at' ? 'asc' : 'desc';
}

/** The open sessions that a filter includes, by their states. */
function matching(states: Map<string, State>, filter: SessionListFilter): string[] {
  const { statuses, finishedFrom = '', finishedTo } = filter;
  const isTimed = filter.finishedFrom !== undefined || finishedTo !== undefined;
  return [...states].flatMap(([id, { status, finishedAt }]) => {
    if (statuses && !statuses.includes(status)) return [];
    if (!isTimed) return [id];
    const isWithin = finishedAt !== null && finishedAt >= finishedFrom && finishedAt <= (finishedTo ?? finishedAt);
    return isWithin ? [id] : [];
  });
}

function finishedAtOf({ status, finished_at: at }: ListedSession): string | null {
  return status === 'idle' ? null : at;
}

function has(text: string, needle: string): boolean {
  return text.toLowerCase().includes(needle);
}

async function inBatches<T, R>(items: readonly T[], map: (item: T, i: number) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let from = 0; from < items.length; from += READ_BATCH_SIZE) {
    const batch = items.slice(from, from + READ_BATCH_SIZE).map((item, i) => map(item, from + i));
    results.push(...(await Promise.all(batch)));
  }
  return results;
}
