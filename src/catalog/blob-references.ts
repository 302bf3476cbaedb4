import type { Kysely, Transaction } from 'kysely';
import type { Tables } from './schema.ts';
import { hasOpenTurn } from './session-states.ts';
import { removeStoredBlobs } from './stored-bytes.ts';
import { Store } from './store.ts';

/** Rows per statement: SQLite allows 32,766 variables in one. */
export const ROW_BATCH_SIZE = 500;

/** The blobs that sessions need, and the sessions whose stored blobs must be compared with these. */
export class BlobReferences extends Store {
  /** The blobs that the archived records of a session refer to, and those that holders in it need. */
  async of(sessionId: string): Promise<Set<string>> {
    return referencesOf(this.db, sessionId);
  }

  /** Sessions whose first turn since their last sweep was before `time`; oldest first. */
  async unswept(time: string, limit: number): Promise<string[]> {
    const rows = await this.db
      .selectFrom('sessions')
      .select('id')
      .where('unswept_since', '<', time)
      .where('deleted_at', 'is', null)
      .orderBy('unswept_since')
      .limit(limit)
      .execute();
    return rows.map(({ id }) => id);
  }

  /**
   * Calls `remove` with the unreferenced blobs among `blobs`, while no turn of the session runs, is requested or can
   * start: a request waits in `touchSession` until this transaction ends. A session with such a turn is skipped and
   * swept again later.
   * @returns false if the session was skipped
   */
  async sweep(
    sessionId: string,
    { blobs, now, isLast }: { blobs: string[]; now: string; isLast: boolean },
    remove: (blobs: string[]) => Promise<void>,
  ): Promise<boolean> {
    return this.db.transaction().execute(async (db) => {
      const setUnsweptSince = (value: string | null) =>
        db.updateTable('sessions').set({ unswept_since: value }).where('id', '=', sessionId).execute();
      // Before any read, since this locks the row.
      await setUnsweptSince(now);
      if (await hasOpenTurn(db, sessionId)) return false;
      const unused = await unreferenced(db, sessionId, blobs);
      if (unused.length > 0) {
        await remove(unused);
        await removeStoredBlobs(db, sessionId, unused);
      }
      if (isLast) await setUnsweptSince(null);
      return true;
    });
  }

  /** Makes a session due for another sweep, counted from `now`. */
  async postpone(sessionId: string, now: string): Promise<void> {
    await this.db.updateTable('sessions').set({ unswept_since: now }).where('id', '=', sessionId).execute();
  }
}

/** Records the blobs that records refer to, in the transaction that archives them. */
export async function referToBlobs(db: Transaction<Tables>, sessionId: string, records: string[]): Promise<void> {
  await addReferences(db, sessionId, records.flatMap(blobsIn));
}

/** Records that a session has blobs, which are kept as long as it exists. */
export async function addReferences(db: Transaction<Tables>, sessionId: string, blobs: string[]): Promise<void> {
  const rows = [...new Set(blobs)].map((blob) => ({ session_id: sessionId, blob }));
  for (let from = 0; from < rows.length; from += ROW_BATCH_SIZE) {
    await db
      .insertInto('blob_references')
      .values(rows.slice(from, from + ROW_BATCH_SIZE))
      .onConflict((conflict) => conflict.columns(['session_id', 'blob']).doNothing())
      .execute();
  }
}

/** Replaces the blobs that a holder in a session needs. The previous ones may be swept from then on. */
export async function holdBlobs(
  db: Transaction<Tables>,
  { sessionId, holder }: { sessionId: string; holder: string },
  blobs: string[],
): Promise<void> {
  const held = db.deleteFrom('held_blobs').where('session_id', '=', sessionId).where('holder', '=', holder);
  await held.execute();
  const rows = [...new Set(blobs)].map((blob) => ({ session_id: sessionId, holder, blob }));
  for (let from = 0; from < rows.length; from += ROW_BATCH_SIZE) {
    await db
      .insertInto('held_blobs')
      .values(rows.slice(from, from + ROW_BATCH_SIZE))
      .execute();
  }
}

/** @param among restricts the result to these blobs; default: all */
async function referencesOf(db: Kysely<Tables>, sessionId: string, among?: string[]): Promise<Set<string>> {
  const found = new Set<string>();
  for (const table of ['blob_references', 'held_blobs'] as const) {
    const all = db.selectFrom(table).select('blob').where('session_id', '=', sessionId);
    const rows = await (among ? all.where('blob', 'in', among) : all).execute();
    for (const { blob } of rows) found.add(blob);
  }
  return found;
}

/** The blobs that a serialized record refers to, as files or as large texts. Inside a text the quotes are escaped. */
function blobsIn(record: string): string[] {
  return [...record.matchAll(/"\$?blob":"([0-9a-f]{64})"/g)].flatMap(([, blob]) => blob ?? []);
}

async function unreferenced(db: Transaction<Tables>, sessionId: string, blobs: string[]): Promise<string[]> {
  if (blobs.length === 0) return [];
  const referenced = await referencesOf(db, sessionId, blobs);
  return blobs.filter((blob) => !referenced.has(blob));
}
