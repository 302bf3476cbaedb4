import { sql, type ExpressionBuilder, type Kysely, type Transaction } from 'kysely';
import type { Tables } from './schema.ts';
import { changeRows, Store } from './store.ts';

/** The row with the sum of all subjects. No subject has an empty id. */
const ALL_SUBJECTS = '';

/** The subjects whose changes are added in one transaction. */
const SUBJECTS_AT_ONCE = 100;

/**
 * What the sessions of each subject store, in bytes: the records and inputs of their turns, their own agents and their
 * blobs. The number of each session is in its row, and ends with it. A trigger inserts each change of it into
 * `stored_bytes_changes`, and housekeeping adds these to the sum of their subject: a sum that every change updated would
 * make the sessions of a subject wait for each other. Sums are cast, since those of bigint are numeric on PostgreSQL,
 * which its driver returns as text.
 */
export class StoredBytes extends Store {
  async of(subject: string): Promise<number> {
    const { bytes } = await this.db
      .selectFrom(
        this.#sums
          .where('subject_id', '=', subject)
          .unionAll(this.#changes.where('subject_id', '=', subject))
          .as('parts'),
      )
      .select(sumOfBytes)
      .executeTakeFirstOrThrow();
    return bytes;
  }

  /** The bytes of all subjects together, and those of the subject that stores the most. */
  async totals(): Promise<{ all: number; largestSubject: number }> {
    const all = await this.db
      .selectFrom(this.#sums.where('subject_id', '=', ALL_SUBJECTS).unionAll(this.#changes).as('parts'))
      .select(sumOfBytes)
      .executeTakeFirstOrThrow();
    const changed = this.db.selectFrom('stored_bytes_changes').select('subject_id');
    const largestChanged = await this.db
      .selectFrom(this.#sums.where('subject_id', 'in', changed).unionAll(this.#changes).as('parts'))
      .select(sumOfBytes)
      .groupBy('subject_id')
      .orderBy('bytes', 'desc')
      .limit(1)
      .executeTakeFirst();
    const largestOther = await this.#sums
      .where('subject_id', '>', ALL_SUBJECTS)
      .where('subject_id', 'not in', changed)
      .orderBy('bytes', 'desc')
      .limit(1)
      .executeTakeFirst();
    return { all: all.bytes, largestSubject: Math.max(largestChanged?.bytes ?? 0, largestOther?.bytes ?? 0) };
  }

  get #sums() {
    return this.db.selectFrom('subject_stored_bytes').select(['subject_id', 'bytes']);
  }

  get #changes() {
    return this.db.selectFrom('stored_bytes_changes').select(['subject_id', 'bytes']);
  }

  /** Adds the changes to the sums, until there are none. */
  async addChanges(stop: AbortSignal): Promise<void> {
    while (!stop.aborted && (await this.#hasChanges())) await this.db.transaction().execute(addSomeChanges);
  }

  /** Read outside a transaction, which would block writes to the database even if there are no changes. */
  async #hasChanges(): Promise<boolean> {
    return (await this.#changes.limit(1).executeTakeFirst()) !== undefined;
  }

  /** Counts a blob that was stored, once, however often it is stored. */
  async addBlob(sessionId: string, blob: string, bytes: number): Promise<void> {
    await this.db.transaction().execute(async (db) => {
      const added = db
        .insertInto('stored_blobs')
        .values({ session_id: sessionId, blob, bytes })
        .onConflict((conflict) => conflict.columns(['session_id', 'blob']).doNothing());
      if (await changeRows(added)) await addStoredBytes(db, sessionId, bytes);
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
 * Adds to what a session stores. Without effect on a deleted session. Never below 0: what an earlier version has stored
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

function sumOfBytes(eb: ExpressionBuilder<{ parts: { bytes: number } }, 'parts'>) {
  return eb.cast<number>(eb.fn.coalesce(eb.fn.sum('bytes'), eb.lit(0)), 'bigint').as('bytes');
}

async function addSomeChanges(db: Transaction<Tables>): Promise<void> {
  const subjects = db.selectFrom('stored_bytes_changes').select('subject_id').distinct().limit(SUBJECTS_AT_ONCE);
  // Another process that adds the same ones waits here, and then finds none.
  const changes = await db
    .deleteFrom('stored_bytes_changes')
    .where('subject_id', 'in', subjects)
    .returning(['subject_id', 'bytes'])
    .execute();
  if (changes.length === 0) return;
  const sums = new Map<string, number>();
  for (const { subject_id, bytes } of changes) {
    for (const id of [ALL_SUBJECTS, subject_id]) sums.set(id, (sums.get(id) ?? 0) + bytes);
  }
  // All of them, and first the one with the sum of all: no two transactions lock them in different orders.
  await db
    .insertInto('subject_stored_bytes')
    .values([...sums].map(([subject_id, bytes]) => ({ subject_id, bytes })))
    .onConflict((conflict) =>
      conflict.column('subject_id').doUpdateSet((eb) => ({
        bytes: eb('subject_stored_bytes.bytes', '+', eb.ref('excluded.bytes')),
      })),
    )
    .execute();
  await db
    .deleteFrom('subject_stored_bytes')
    .where('subject_id', 'in', [...sums.keys()])
    .where('bytes', '=', 0)
    .execute();
}
