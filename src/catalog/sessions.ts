import type { Kysely, Transaction } from 'kysely';
import { NO_ENCRYPTION, type Cipher } from '../encryption/cipher.ts';
import type { NewSessionRow, SessionRow, Tables } from './schema.ts';

/** A place in a listing: behind the session with this time and id. */
export interface SessionPlace {
  createdAt: string;
  id: string;
}

/** Which sessions a listing has. Times are bounds of `created_at`, both inclusive. */
export interface SessionFilter {
  type: SessionRow['type'];
  id?: string | undefined;
  agentName?: string | undefined;
  subjectId?: string | undefined;
  subjectType?: string | undefined;
  subjectSlug?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
}

export interface SessionPage {
  order: 'asc' | 'desc';
  after: SessionPlace | undefined;
  limit: number;
}

/** The index of sessions and drafts. Those that are deleted are not found by any of these but the last few. */
export class Sessions {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;

  constructor(db: Kysely<Tables>, cipher = NO_ENCRYPTION) {
    this.#db = db;
    this.#cipher = cipher;
  }

  async get(id: string): Promise<SessionRow | undefined> {
    const row = await this.#db
      .selectFrom('sessions')
      .selectAll()
      .where('id', '=', id)
      .where('deleted_at', 'is', null)
      .executeTakeFirst();
    return row && this.#open(row);
  }

  /**
   * A page of the sessions of one type, by their creation. Each type has indexes for its own listings, so that only the
   * rows of the page are read; a listing of both is two of these.
   */
  async list(filter: SessionFilter, { order, after, limit }: SessionPage): Promise<SessionRow[]> {
    let query = this.#db
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
    ] as const) {
      if (value !== undefined) query = query.where(column, '=', value);
    }
    // A place is in the window, and stands for its bound on that side.
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

  /** Does nothing if the session exists: the request that creates it came twice. */
  async insert(session: NewSessionRow): Promise<void> {
    const { id, title, metadata } = session;
    await this.#db
      .insertInto('sessions')
      .values({
        ...session,
        title: title ? this.#cipher.sealText(title, aadForTitle(id)) : title,
        metadata: metadata ? this.#cipher.sealText(metadata, aadForMetadata(id)) : metadata,
        active_at: session.created_at,
      })
      .onConflict((conflict) => conflict.column('id').doNothing())
      .execute();
  }

  /** A draft's new spec; without one the draft is only touched. */
  async update(id: string, change: { spec_hash?: string; draft_roles?: string; updated_at: string }): Promise<void> {
    await this.#db.transaction().execute(async (db) => {
      const session = db.updateTable('sessions').where('id', '=', id);
      // First, since it holds the row: of two changes at once the second one finds what the first has left.
      await session.set({ updated_at: change.updated_at, active_at: change.updated_at }).execute();
      if (change.spec_hash === undefined) return;
      await leaveSpec(db, id, change.updated_at);
      await session.set({ spec_hash: change.spec_hash, draft_roles: change.draft_roles }).execute();
    });
  }

  async close(id: string): Promise<void> {
    await this.#db.updateTable('sessions').set({ closed: 1 }).where('id', '=', id).execute();
  }

  /** Makes a session's retention count from `now`. */
  async touch(id: string, now: string): Promise<void> {
    await this.#db.updateTable('sessions').set({ active_at: now }).where('id', '=', id).execute();
  }

  /**
   * The end of a session, at once and for everybody; what belongs to it is still to be removed. With `idleSince` only if
   * nothing has happened in it since. False if there is no such session.
   */
  async delete(id: string, now: string, { idleSince }: { idleSince?: string } = {}): Promise<boolean> {
    return this.#db.transaction().execute(async (db) => {
      const { numUpdatedRows } = await db
        .updateTable('sessions')
        .set({ deleted_at: now, removal_at: now, title: null, metadata: null })
        .where('id', '=', id)
        .where('deleted_at', 'is', null)
        .$if(idleSince !== undefined, (query) => query.where('active_at', '=', idleSince ?? ''))
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return false;
      // Whoever repeats the request that created it wants a session that exists.
      await db.deleteFrom('idempotency').where('session_id', '=', id).execute();
      return true;
    });
  }

  /** When a session was deleted; undefined if it was not, or is gone altogether. */
  async deletedAt(id: string): Promise<string | undefined> {
    const row = await this.#db.selectFrom('sessions').select('deleted_at').where('id', '=', id).executeTakeFirst();
    return row?.deleted_at ?? undefined;
  }

  /** Deleted sessions that are to be looked after by now, those that wait longest first. */
  async toRemove(now: string, after: { removalAt: string; id: string } | undefined, limit: number) {
    let query = this.#db.selectFrom('sessions').select(['id', 'removal_at']).where('removal_at', '<=', now);
    if (after) {
      query = query.where((eb) => eb(eb.refTuple('removal_at', 'id'), '>', eb.tuple(after.removalAt, after.id)));
    }
    return query.orderBy('removal_at').orderBy('id').limit(limit).execute();
  }

  /**
   * Forgets what the catalog knows of a deleted session beside its turns, and in the end that it was there; until then
   * it is looked after once more at `again`.
   */
  async forget(id: string, { now, again }: { now: string; again: string | undefined }): Promise<void> {
    await this.#db.transaction().execute(async (db) => {
      await db.deleteFrom('idempotency').where('session_id', '=', id).execute();
      await db.deleteFrom('blob_references').where('session_id', '=', id).execute();
      const deleted = db.deleteFrom('sessions').where('id', '=', id).where('deleted_at', 'is not', null);
      if (again === undefined) {
        await leaveSpec(db, id, now);
        await deleted.execute();
      } else await db.updateTable('sessions').set({ removal_at: again }).where('id', '=', id).execute();
    });
  }

  /** A session whose key is gone has no title, and can be deleted all the same. */
  #open(row: SessionRow): SessionRow {
    if (!this.#cipher.isOn) return row;
    return {
      ...row,
      title: this.#cipher.openLabel(row.title, aadForTitle(row.id)),
      metadata: this.#cipher.openLabel(row.metadata, aadForMetadata(row.id)),
    };
  }
}

/** Where a title belongs, for the cipher. */
export function aadForTitle(sessionId: string): string {
  return `session/${sessionId}/title`;
}

function aadForMetadata(sessionId: string): string {
  return `session/${sessionId}/metadata`;
}

/** Notes that the session has another spec than its present one from `now` on, or none. */
async function leaveSpec(db: Transaction<Tables>, sessionId: string, now: string): Promise<void> {
  await db
    .updateTable('specs')
    .set({ unused_since: now })
    .where('hash', '=', (eb) => eb.selectFrom('sessions').select('spec_hash').where('id', '=', sessionId))
    .execute();
}

/**
 * Notes that something happens in a session, in the transaction in which it does: whoever deletes the session, or
 * collects its blobs, comes before all of that or after it. False if there is no such session.
 */
export async function touchSession(db: Transaction<Tables>, session: { id: string; at: string }): Promise<boolean> {
  const { id, at } = session;
  const { numUpdatedRows } = await db
    .updateTable('sessions')
    .set((eb) => ({
      active_at: eb.case().when('active_at', '<', at).then(at).else(eb.ref('active_at')).end(),
      unswept_since: eb.fn.coalesce('unswept_since', eb.val(at)),
    }))
    .where('id', '=', id)
    .where('deleted_at', 'is', null)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}
