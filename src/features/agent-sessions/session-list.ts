import { sql, type RawBuilder } from 'kysely';
import type { SessionState } from '../../core/session-state.ts';
import { isShownSession } from '../../catalog/session-types.ts';
import { aadForFirstMessage } from './session-requests.ts';
import { sessionTexts } from './session-texts.ts';
import { Store } from '../../catalog/store.ts';

/** The sessions that a list includes. All bounds of times are inclusive. */
export interface SessionListFilter {
  subjectId?: string | undefined;
  groupId?: string | undefined;
  parentId?: string | undefined;
  scheduleId?: string | undefined;
  createdFrom?: string | undefined;
  createdTo?: string | undefined;
  /** The names by which agents were requested. */
  agents?: string[] | undefined;
  states?: SessionState[] | undefined;
  finishedFrom?: string | undefined;
  finishedTo?: string | undefined;
}

interface Listing {
  filter: SessionListFilter;
  order: 'asc' | 'desc';
  now: Date;
}

/** A session in a list. */
export interface ListedSession {
  id: string;
  agent: string | null;
  agent_revision: number | null;
  state: SessionState;
  finished_at: string | null;
  created_at: string;
  started_at: string | null;
  active_at: string;
  /** Undefined if the session has no message. */
  firstMessage: string | undefined;
  lastAnswer: string | undefined;
}

/** A list reads only this many sessions, the first in its order: this bounds the cost of a page, and its `total`. */
const MAX_LISTED = 10_000;

/** Lists of sessions for the Agents API v2. An idle session is completed at its timeout, even before the sweep. */
export class SessionList extends Store {
  async count(listing: Listing): Promise<number> {
    const { count } = await this.db
      .selectFrom(this.#matching(listing).select('id').as('matching'))
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow();
    return count;
  }

  async page(listing: Listing, { offset, limit }: { offset: number; limit: number }): Promise<ListedSession[]> {
    const { now, order } = listing;
    const ids = await this.#matching(listing)
      .select('id')
      .orderBy('created_at', order)
      .orderBy('id', order)
      .limit(limit)
      .offset(offset)
      .execute();
    if (ids.length === 0) return [];
    const rows = await this.#joined()
      .select(['s.id', 's.created_at', 's.active_at', 'r.first_message', ...stateAt(now)])
      .select((eb) => [
        agentName.as('agent'),
        eb.fn.coalesce('r.agent_revision', 's.agent_version').as('agent_revision'),
        eb
          .selectFrom('turns')
          .select('turns.created_at')
          .whereRef('turns.session_id', '=', 's.id')
          .where('turns.sequence', 'is not', null)
          .orderBy('turns.sequence')
          .limit(1)
          .as('started_at'),
      ])
      .where(
        's.id',
        'in',
        ids.map(({ id }) => id),
      )
      .orderBy('s.created_at', order)
      .orderBy('s.id', order)
      .execute();
    const texts = await sessionTexts(
      this.db,
      this.cipher,
      rows.map(({ id }) => id),
    );
    return rows.map(({ first_message: sealed, ...row }) => {
      const { firstMessage, lastAnswer } = texts.get(row.id) ?? {};
      const ofRequest = this.cipher.openLabel(sealed, aadForFirstMessage(row.id));
      return { ...row, firstMessage: ofRequest ?? firstMessage, lastAnswer };
    });
  }

  #joined() {
    return this.db.selectFrom('sessions as s').leftJoin('session_requests as r', 'r.session_id', 's.id');
  }

  /** The first sessions of the list by the indexed filters, then those of them that match the other filters. */
  #matching({ filter, order, now }: Listing) {
    const { subjectId, groupId, parentId, scheduleId, createdFrom, createdTo } = filter;
    const { agents, states, finishedFrom, finishedTo } = filter;
    let candidates = this.#joined()
      .select(['s.id', 's.created_at', agentName.as('agent'), ...stateAt(now)])
      .where('s.deleted_at', 'is', null)
      .where(isShownSession)
      .orderBy('s.created_at', order)
      .orderBy('s.id', order)
      .limit(MAX_LISTED);
    for (const [column, value] of [
      ['s.subject_id', subjectId],
      ['r.group_id', groupId],
      ['r.parent_session_id', parentId],
      ['r.schedule_id', scheduleId],
    ] as const) {
      if (value !== undefined) candidates = candidates.where(column, '=', value);
    }
    if (createdFrom !== undefined) candidates = candidates.where('s.created_at', '>=', createdFrom);
    if (createdTo !== undefined) candidates = candidates.where('s.created_at', '<=', createdTo);
    let matching = this.db.selectFrom(candidates.as('candidates'));
    if (agents) matching = matching.where('agent', 'in', agents);
    if (states) matching = matching.where('state', 'in', states);
    if (finishedFrom !== undefined) matching = matching.where('finished_at', '>=', finishedFrom);
    if (finishedTo !== undefined) matching = matching.where('finished_at', '<=', finishedTo);
    return matching;
  }
}

/** The state of a session at a time, and the time of its end. */
function stateAt(now: Date) {
  const isOver = sql<boolean>`(s.state = 'idle' and r.waits_until <= ${now.toISOString()})`;
  return [
    sql<SessionState>`case when ${isOver} then 'completed' else coalesce(s.state, 'idle') end`.as('state'),
    sql<string | null>`case when ${isOver} then r.waits_until else s.ended_at end`.as('finished_at'),
  ] as const;
}

/** The name of a session's agent. A session of another API has one if its agent is registered. */
const agentName: RawBuilder<string | null> = sql`
  case when r.session_id is not null then r.agent when s.type = 'session' then s.agent_name end`;
