import { sql, type ExpressionBuilder, type Kysely, type RawBuilder, type Transaction } from 'kysely';
import type { TurnDone } from '../core/records/turn.ts';
import type { Subject } from '../core/subject.ts';
import { type Cipher } from '../encryption/cipher.ts';
import type { NewSessionRow, SessionRow, Tables } from './schema.ts';
import type { SessionState } from '../core/session-state.ts';
import { isOfRun } from './session-types.ts';
import { changeRows, Store } from './store.ts';

/** A position in a listing: after the session with this time and id. */
interface SessionPosition {
  createdAt: string;
  id: string;
}

/** The sessions that a listing includes. `from` and `to` are inclusive bounds of `created_at`. */
export interface SessionFilter {
  type: SessionRow['type'];
  id?: string | undefined;
  agentName?: string | undefined;
  subjectId?: string | undefined;
  subjectType?: string | undefined;
  subjectSlug?: string | undefined;
  /** In one of these states. */
  states?: readonly SessionState[] | undefined;
  /** Not in this state. */
  exceptState?: SessionState | undefined;
  isClosed?: boolean | undefined;
  from?: string | undefined;
  to?: string | undefined;
}

export interface SessionPage {
  order: 'asc' | 'desc';
  after: SessionPosition | undefined;
  limit: number;
}

/** The index of sessions and drafts. Only the methods for removal find deleted sessions. */
export class Sessions extends Store {
  async get(id: string): Promise<SessionRow | undefined> {
    const row = await this.db
      .selectFrom('sessions')
      .selectAll()
      .where('id', '=', id)
      .where('deleted_at', 'is', null)
      .executeTakeFirst();
    return row && this.#open(row);
  }

  /**
   * Lists one page of the sessions of one type, by creation. The indexes begin with the type, so only the rows of the
   * page are read; a listing of both types merges two calls.
   */
  async list({ states, ...filter }: SessionFilter, page: SessionPage): Promise<SessionRow[]> {
    if (!states) return this.#list(filter, page);
    // Each is read in the order of the list by an index that has the state; together they would be sorted.
    const found = await Promise.all(states.map((state) => this.#list({ ...filter, state }, page)));
    return firstOf(found.flat(), page);
  }

  async #list(
    filter: Omit<SessionFilter, 'states'> & { state?: SessionState },
    { order, after, limit }: SessionPage,
  ): Promise<SessionRow[]> {
    let query = this.db
      .selectFrom('sessions')
      .selectAll()
      .where('type', '=', filter.type)
      .where('deleted_at', 'is', null);
    for (const [column, value] of [
      ['id', filter.id],
      ['agent_name', filter.agentName],
      ['subject_id', filter.subjectId],
      ['subject_type', filter.subjectType],
      ['subject_slug', filter.subjectSlug],
      ['state', filter.state],
    ] as const) {
      if (value !== undefined) query = query.where(column, '=', value);
    }
    const { exceptState, isClosed } = filter;
    // A literal, so that SQLite uses the partial indexes.
    if (isClosed !== undefined) query = query.where('closed', '=', sql.lit(Number(isClosed)));
    if (exceptState) query = query.where((eb) => eb.or([eb('state', 'is', null), eb('state', '<>', exceptState)]));
    // A position lies within the bounds and replaces the bound on its side.
    const [from, to] = [
      after && order === 'asc' ? undefined : filter.from,
      after && order === 'desc' ? undefined : filter.to,
    ];
    if (from !== undefined) query = query.where('created_at', '>=', from);
    if (to !== undefined) query = query.where('created_at', '<=', to);
    if (after) {
      query = query.where((eb) =>
        eb(eb.refTuple('created_at', 'id'), order === 'asc' ? '>' : '<', eb.tuple(after.createdAt, after.id)),
      );
    }
    const rows = await query.orderBy('created_at', order).orderBy('id', order).limit(limit).execute();
    return rows.map((row) => this.#open(row));
  }

  /** Inserts a session. Does nothing if it exists, and returns undefined: the request that creates it was repeated. */
  async insert(session: NewSessionRow): Promise<SessionRow | undefined> {
    const row = await insertSession(this.db, this.cipher, session);
    return row && this.#open(row);
  }

  /** Sets a draft's spec; without one, only updates its times. */
  async update(id: string, change: { spec_hash?: string; draft_roles?: string; updated_at: string }): Promise<void> {
    await this.db.transaction().execute(async (db) => {
      const session = db.updateTable('sessions').where('id', '=', id);
      // First, since this locks the row: of two concurrent changes, the second reads what the first wrote.
      await session.set({ updated_at: change.updated_at, active_at: change.updated_at }).execute();
      if (change.spec_hash === undefined) return;
      await leaveSpec(db, id, change.updated_at);
      const { spec_hash, draft_roles } = change;
      const grown = sql<number>`stored_bytes + ${lengthOfSpec(spec_hash)} - ${lengthOfSpec(sql.ref('spec_hash'))}`;
      await session.set({ spec_hash, draft_roles, stored_bytes: grown }).execute();
    });
  }

  async close(id: string): Promise<void> {
    await this.context.outbox.transaction(async (db, emit) => {
      await db.updateTable('sessions').set({ closed: 1 }).where('id', '=', id).execute();
      for (const reader of this.context.features.readers)
        await reader.sessionEnded?.(db, id, { isDeleted: false }, emit);
    });
  }

  /** Restarts a session's retention at `now`. */
  async touch(id: string, now: string): Promise<void> {
    await this.db.updateTable('sessions').set({ active_at: now }).where('id', '=', id).execute();
  }

  /**
   * Marks a session as deleted: from the commit on no caller finds it, and housekeeping removes its data. With
   * `idleSince`, only if the session had no activity since then. False if there is no such session.
   */
  async delete(id: string, now: string, { idleSince }: { idleSince?: string } = {}): Promise<boolean> {
    return this.context.outbox.transaction(async (db, emit) => {
      const deleted = db
        .updateTable('sessions')
        .set({ deleted_at: now, removal_at: now, title: null, metadata: null, stored_bytes: 0 })
        .where('id', '=', id)
        .where('deleted_at', 'is', null)
        .$if(idleSince !== undefined, (query) => query.where('active_at', '=', idleSince ?? ''));
      if (!(await changeRows(deleted))) return false;
      // A repetition of the request that created it must create a new session.
      await db.deleteFrom('idempotency').where('session_id', '=', id).execute();
      for (const reader of this.context.features.readers)
        await reader.sessionEnded?.(db, id, { isDeleted: true }, emit);
      return true;
    });
  }

  /** When a session was deleted; undefined if it was not, or if its row is already removed. */
  async deletedAt(id: string): Promise<string | undefined> {
    const row = await this.db.selectFrom('sessions').select('deleted_at').where('id', '=', id).executeTakeFirst();
    return row?.deleted_at ?? undefined;
  }

  /** Deleted sessions whose removal is due, earliest first, starting after `after`. */
  async toRemove(now: string, after: { removalAt: string; id: string } | undefined, limit: number) {
    let query = this.db.selectFrom('sessions').select(['id', 'removal_at']).where('removal_at', '<=', now);
    if (after) {
      query = query.where((eb) => eb(eb.refTuple('removal_at', 'id'), '>', eb.tuple(after.removalAt, after.id)));
    }
    return query.orderBy('removal_at').orderBy('id').limit(limit).execute();
  }

  /**
   * Deletes the catalog's data of a deleted session, except for its turns. With `again`, keeps the session's row and
   * makes its removal due once more at that time; without it, deletes the row too.
   */
  async forget(id: string, { now, again }: { now: string; again: string | undefined }): Promise<void> {
    await this.db.transaction().execute(async (db) => {
      const { readers, tablesOfSessions } = this.context.features;
      const tables = ['idempotency', 'blob_references', 'held_blobs', 'stored_blobs', ...tablesOfSessions] as const;
      for (const table of tables) await db.deleteFrom(table).where('session_id', '=', id).execute();
      const isLast = again === undefined;
      for (const reader of readers) await reader.sessionRemoved?.(db, id, { isLast });
      const deleted = db.deleteFrom('sessions').where('id', '=', id).where('deleted_at', 'is not', null);
      if (isLast) {
        await leaveSpec(db, id, now);
        await deleted.execute();
      } else await db.updateTable('sessions').set({ removal_at: again }).where('id', '=', id).execute();
    });
  }

  /** Decrypts a row. If the key is missing, title and metadata are null, so that the session can still be deleted. */
  #open(row: SessionRow): SessionRow {
    if (!this.cipher.isOn) return row;
    return {
      ...row,
      title: this.cipher.openLabel(row.title, aadForTitle(row.id)),
      metadata: this.cipher.openLabel(row.metadata, aadForMetadata(row.id)),
    };
  }
}

/** Inserts a session, and returns the row as it is stored; undefined if the session exists. */
export async function insertSession(
  db: Kysely<Tables>,
  cipher: Cipher,
  session: NewSessionRow,
): Promise<SessionRow | undefined> {
  const { id, title, metadata } = session;
  const length = (title?.length ?? 0) + (metadata?.length ?? 0);
  return db
    .insertInto('sessions')
    .values({
      state: isOfRun(session) ? 'pending' : 'idle',
      ...session,
      title: title ? cipher.sealText(title, aadForTitle(id)) : title,
      metadata: metadata ? cipher.sealText(metadata, aadForMetadata(id)) : metadata,
      active_at: session.created_at,
      // The agent of another session was stored by its operator.
      stored_bytes: session.draft_roles ? sql<number>`${length} + ${lengthOfSpec(session.spec_hash)}` : length,
    })
    .onConflict((conflict) => conflict.column('id').doNothing())
    .returningAll()
    .executeTakeFirst();
}

function lengthOfSpec(hash: string | RawBuilder<unknown>): RawBuilder<number> {
  return sql`coalesce((select length(specs.spec) from specs where specs.hash = ${hash}), 0)`;
}

/** The additional authenticated data of a title. */
export function aadForTitle(sessionId: string): string {
  return `session/${sessionId}/title`;
}

function aadForMetadata(sessionId: string): string {
  return `session/${sessionId}/metadata`;
}

/** Marks the session's current spec as possibly unused from `now` on: the session is about to get another, or none. */
async function leaveSpec(db: Transaction<Tables>, sessionId: string, now: string): Promise<void> {
  await db
    .updateTable('specs')
    .set({ unused_since: now })
    .where('hash', '=', (eb) => eb.selectFrom('sessions').select('spec_hash').where('id', '=', sessionId))
    .execute();
}

/** A session, by its id or that of one of its turns. */
type SessionOf = { id: string } | { turnId: string };

/** Finds the session in its table. */
function isSession(which: SessionOf) {
  return (eb: ExpressionBuilder<Tables, 'sessions'>) =>
    'id' in which
      ? eb('sessions.id', '=', which.id)
      : eb('sessions.id', '=', eb.selectFrom('turns').select('session_id').where('turns.id', '=', which.turnId));
}

type Touched = SessionOf & {
  at: string;
  /** A turn of it has begun: the title that it has from then on, if it has none, encrypted. */
  begun?: { title: string | null };
};

/**
 * Records activity in a session, in the transaction of that activity. It locks the session's row, so a deletion of the
 * session or a collection of its blobs happens entirely before or after. False if there is no such session.
 */
export async function touchSession(db: Transaction<Tables>, { at, begun, ...which }: Touched): Promise<boolean> {
  const touched = db
    .updateTable('sessions')
    .set((eb) => ({
      active_at: eb.case().when('active_at', '<', at).then(at).else(eb.ref('active_at')).end(),
      unswept_since: eb.fn.coalesce('unswept_since', eb.val(at)),
      ...(begun && {
        title: eb.fn.coalesce('title', eb.val(begun.title)),
        updated_at: eb.case().when('updated_at', '<', at).then(at).else(eb.ref('updated_at')).end(),
      }),
    }))
    .where(isSession(which))
    .where('deleted_at', 'is', null);
  return changeRows(touched);
}

/** Locks a session's row until the end of the transaction: what happens to one session happens one after the other. */
export async function lockSession(db: Transaction<Tables>, which: SessionOf): Promise<void> {
  await db
    .updateTable('sessions')
    .set((eb) => ({ active_at: eb.ref('active_at') }))
    .where(isSession(which))
    .execute();
}

/**
 * Adds what an ended turn has used to its session, in the transaction that archives its end. The sum with an unknown cost
 * is null. Returns the owner of the session.
 */
export async function addSessionTotals(
  db: Transaction<Tables>,
  id: string,
  { usage, modelCalls, toolCalls, waitedMs, bytes }: TurnDone & { bytes: number },
): Promise<Pick<SessionRow, 'agent_name' | 'subject_id' | 'type'>> {
  const { inputTokens, outputTokens, costInUsd } = usage;
  const cost = inputTokens + outputTokens === 0 ? 0 : costInUsd;
  return db
    .updateTable('sessions')
    .set((eb) => ({
      cost_in_usd: cost === undefined ? null : eb('cost_in_usd', '+', cost),
      input_tokens: eb('input_tokens', '+', inputTokens),
      output_tokens: eb('output_tokens', '+', outputTokens),
      model_calls: eb('model_calls', '+', modelCalls),
      tool_calls: eb('tool_calls', '+', toolCalls),
      waited_ms: eb('waited_ms', '+', waitedMs),
      stored_bytes: eb('stored_bytes', '+', bytes),
    }))
    .where('id', '=', id)
    .returning(['agent_name', 'subject_id', 'type'])
    .executeTakeFirstOrThrow();
}

/** The first sessions of several lists with the same order. */
export function firstOf(sessions: SessionRow[], { order, limit }: SessionPage): SessionRow[] {
  const direction = order === 'asc' ? 1 : -1;
  return sessions.toSorted((a, b) => compare(a, b) * direction).slice(0, limit);
}

/** Compares like the catalog, which orders both columns by their bytes. */
function compare(a: SessionRow, b: SessionRow): number {
  const [first, second] = [a.created_at + a.id, b.created_at + b.id];
  return first < second ? -1 : first > second ? 1 : 0;
}

/** The columns of the subject that owns a session. */
type OwnerColumns = Pick<SessionRow, 'subject_id' | 'subject_type' | 'subject_slug'>;

export function subjectOf(row: OwnerColumns): Subject {
  return { subjectId: row.subject_id, subjectType: row.subject_type, subjectSlug: row.subject_slug };
}

export function ownerColumns({ subjectId, subjectType, subjectSlug }: Subject): OwnerColumns {
  return { subject_id: subjectId, subject_type: subjectType, subject_slug: subjectSlug };
}
