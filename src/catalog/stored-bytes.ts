import { sql, type Kysely, type Transaction } from 'kysely';
import type { Tables } from './schema.ts';

/**
 * What the sessions of each subject store, in bytes: the records and inputs of their turns, their own agents and their
 * blobs. The number of each session is in its row, and ends with it. Sums are cast, since those of bigint are numeric on
 * PostgreSQL, which its driver returns as text.
 */
export class StoredBytes {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  async of(subject: string): Promise<number> {
    const { bytes } = await storing(this.#db)
      .select((eb) => eb.cast<number>(eb.fn.coalesce(eb.fn.sum('stored_bytes'), eb.lit(0)), 'bigint').as('bytes'))
      .where('subject_id', '=', subject)
      .executeTakeFirstOrThrow();
    return bytes;
  }

  /** The bytes of all subjects together, and those of the subject that stores the most. */
  async totals(): Promise<{ all: number; largestSubject: number }> {
    const { all, largest } = await this.#db
      .selectFrom(
        storing(this.#db)
          .select((eb) => eb.fn.sum<number>('stored_bytes').as('bytes'))
          .groupBy('subject_id')
          .as('subjects'),
      )
      .select((eb) => [
        eb.cast<number>(eb.fn.coalesce(eb.fn.sum('bytes'), eb.lit(0)), 'bigint').as('all'),
        eb.cast<number>(eb.fn.coalesce(eb.fn.max('bytes'), eb.lit(0)), 'bigint').as('largest'),
      ])
      .executeTakeFirstOrThrow();
    return { all, largestSubject: largest };
  }

  /** Counts a blob that was stored, once, however often it is stored. */
  async addBlob(sessionId: string, blob: string, bytes: number): Promise<void> {
    await this.#db.transaction().execute(async (db) => {
      const { numInsertedOrUpdatedRows: added } = await db
        .insertInto('stored_blobs')
        .values({ session_id: sessionId, blob, bytes })
        .onConflict((conflict) => conflict.columns(['session_id', 'blob']).doNothing())
        .executeTakeFirst();
      if (added) await addStoredBytes(db, sessionId, bytes);
    });
  }
}

/** Blobs of a session were deleted. */
export async function removeStoredBlobs(db: Transaction<Tables>, sessionId: string, blobs: string[]): Promise<void> {
  const removed = await db
    .deleteFrom('stored_blobs')
    .where('session_id', '=', sessionId)
    .where('blob', 'in', blobs)
    .returning('bytes')
    .execute();
  await addStoredBytes(db, sessionId, -removed.reduce((sum, { bytes }) => sum + bytes, 0));
}

/**
 * Adds to what a session stores. Without effect on one that was deleted. Never below 0: what an earlier version has stored
 * was not counted, and may be subtracted.
 */
export async function addStoredBytes(db: Kysely<Tables>, sessionId: string, bytes: number): Promise<void> {
  const sum = sql<number>`stored_bytes + ${sql.lit(bytes)}`;
  await db
    .updateTable('sessions')
    .set({ stored_bytes: sql<number>`case when ${sum} < 0 then 0 else ${sum} end` })
    .where('id', '=', sessionId)
    .where('deleted_at', 'is', null)
    .execute();
}

/** The sessions that store something. Literals, so that SQLite uses the partial index, in which are all columns. */
function storing(db: Kysely<Tables>) {
  return db.selectFrom('sessions').where('stored_bytes', '>', sql.lit(0));
}
