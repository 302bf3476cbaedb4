import { sql, type Kysely, type RawBuilder } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { Tables } from './schema.ts';
import { SHOWN_SESSIONS } from './session-types.ts';
import { aadForFirstMessage } from './session-requests.ts';

/** Which sessions a list includes. All bounds of times are inclusive. */
export interface SessionListFilter {
  subjectId?: string | undefined;
  groupId?: string | undefined;
  parentId?: string | undefined;
  scheduleId?: string | undefined;
  createdFrom?: string | undefined;
  createdTo?: string | undefined;
  /** The names by which agents were requested. */
  agents?: string[] | undefined;
  statuses?: string[] | undefined;
  finishedFrom?: string | undefined;
  finishedTo?: string | undefined;
}

interface Listing {
  filter: SessionListFilter;
  order: 'asc' | 'desc';
  now: Date;
  /** The open sessions that match the filter, whatever the catalog has of them; undefined: none is read. */
  open?: string[] | undefined;
}

/** A session in a list. */
export interface ListedSession {
  id: string;
  agent: string | null;
  agent_revision: number | null;
  /** `open`: what it does can be read in the log of its last turn only. */
  status: string;
  finished_at: string | null;
  created_at: string;
  started_at: string | null;
  active_at: string;
  /** Undefined if it has no messages from its creation. */
  firstMessage: string | undefined;
}

/** A list looks at this many sessions, the first in its order: the cost of a page is bounded, and so is its `total`. */
export const MAX_LISTED = 10_000;

/** A request for a turn that has not become one after this time most likely never will. */
const REQUEST_MS = 60_000;

/**
 * Lists of sessions with the states in which the Agents API v2 shows them. The state of a session whose turns have ended
 * follows from columns that never change without a further turn; `src/api/agents-v2/session-state.ts` is the truth, and a
 * test compares the two.
 */
export class SessionList {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;

  constructor(db: Kysely<Tables>, cipher: Cipher) {
    this.#db = db;
    this.#cipher = cipher;
  }

  /** The sessions of a filter without its states that are open, in the order of the list. */
  async open({ filter, ...listing }: Omit<Listing, 'open'>): Promise<string[]> {
    const { statuses: _, finishedFrom: __, finishedTo: ___, ...rest } = filter;
    const rows = await this.#matching({ ...listing, filter: { ...rest, statuses: ['open'] } })
      .select('id')
      .orderBy('created_at', listing.order)
      .orderBy('id', listing.order)
      .execute();
    return rows.map(({ id }) => id);
  }

  async count(listing: Listing): Promise<number> {
    const { count } = await this.#db
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
      .select(['s.id', 's.created_at', 's.active_at', 'r.first_message'])
      .select((eb) => [
        agentName.as('agent'),
        eb.fn.coalesce('r.agent_revision', 's.agent_version').as('agent_revision'),
        statusAt(now).as('status'),
        finishedAt.as('finished_at'),
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
    return rows.map(({ first_message: sealed, ...row }) => ({
      ...row,
      firstMessage: this.#cipher.openLabel(sealed, aadForFirstMessage(row.id)) ?? undefined,
    }));
  }

  #joined() {
    return this.#db.selectFrom('sessions as s').leftJoin('session_requests as r', 'r.session_id', 's.id');
  }

  /** The first sessions of the list, of which those match that pass the filters without an index. */
  #matching({ filter, order, now, open = [] }: Listing) {
    const { subjectId, groupId, parentId, scheduleId, createdFrom, createdTo } = filter;
    const { agents, statuses, finishedFrom, finishedTo } = filter;
    let candidates = this.#joined()
      .select(['s.id', 's.created_at', agentName.as('agent'), statusAt(now).as('status')])
      .select(finishedAt.as('finished_at'))
      .where('s.deleted_at', 'is', null)
      .where('s.type', 'in', SHOWN_SESSIONS)
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
    let matching = this.#db.selectFrom(candidates.as('candidates'));
    if (agents) matching = matching.where('agent', 'in', agents);
    if (!statuses && finishedFrom === undefined && finishedTo === undefined) return matching;
    return matching.where((eb) => {
      const isKnown = eb.and([
        ...(statuses ? [eb('status', 'in', statuses)] : [eb('status', '<>', 'open')]),
        ...(finishedFrom === undefined ? [] : [eb('finished_at', '>=', finishedFrom)]),
        ...(finishedTo === undefined ? [] : [eb('finished_at', '<=', finishedTo)]),
      ]);
      return open.length > 0 ? eb.or([isKnown, eb('id', 'in', open)]) : isKnown;
    });
  }
}

/** Also of a session of another API, if its agent is registered. */
const agentName: RawBuilder<string | null> = sql`
  case when r.session_id is not null then r.agent when s.type = 'session' then s.agent_name end`;

const isCancelled = sql`r.cancelled_at >= coalesce(s.last_turn_at, '')`;

/** The state of a session, if it follows from the catalog alone; else `open`. */
function statusAt(now: Date): RawBuilder<string> {
  const requestedSince = new Date(now.getTime() - REQUEST_MS).toISOString();
  return sql`case
    when r.queue_number is not null then 'queued'
    when r.first_turn_id is not null then 'open'
    when s.id in (
      select session_id from turns where archived = 0 and (sequence is not null or created_at > ${requestedSince})
    ) then 'open'
    when ${isCancelled} then 'interrupted'
    when s.last_end is null and r.start_error is not null then 'failed'
    when s.last_end is null then 'idle'
    when s.last_end = 'answered' and (r.session_id is null or r.waits_until > ${now.toISOString()}) then 'idle'
    when s.last_end = 'answered' then 'completed'
    when s.last_end = 'client-cancelled' then 'interrupted'
    when s.last_end in ('server-execution-timeout', 'out_of_time') then 'timed_out'
    when s.last_end in ('error', 'abandoned', 'unanswered') then 'failed'
    else 'open' end`;
}

/** When a session has ended that is neither open nor idle. */
const finishedAt: RawBuilder<string | null> = sql`case
  when r.queue_number is not null then null
  when ${isCancelled} then case when s.ended_at > r.cancelled_at then s.ended_at else r.cancelled_at end
  when s.last_end is null then r.start_failed_at
  when r.session_id is null and s.last_end = 'answered' then null
  else coalesce(r.waits_until, s.ended_at) end`;
