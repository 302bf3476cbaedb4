import type { Kysely } from 'kysely';
import type { LogEntry, LogRecord } from '../log/records.ts';
import { referToBlobs } from './blob-references.ts';
import type { Tables } from './schema.ts';
import { noteActivity } from './sessions.ts';

/** Rows per statement: SQLite takes 32,766 variables in one. */
const ROWS_AT_ONCE = 500;

/** What the column holds on PostgreSQL; a client's cursor may point beyond it. */
const MAX_ORDINAL = 2 ** 31 - 1;

/** The logs of ended turns, and the ended parts of long running ones. Records stand here as they do in histories. */
export class Archive {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  /**
   * Adds entries of a turn that is in the index; `complete` if the log ends with them. Entries that are there already are
   * left alone. False if the turn's session was deleted: nothing is added then.
   */
  async add(turnId: string, entries: LogEntry[], complete: boolean): Promise<boolean> {
    const last = entries.at(-1);
    if (!last) return true;
    return this.#db.transaction().execute(async (db) => {
      const turn = await db.selectFrom('turns').select('session_id').where('id', '=', turnId).executeTakeFirst();
      if (!turn || !(await noteActivity(db, { id: turn.session_id, at: last.record.at }))) return false;
      const { ordinal: through } = last;
      const { numUpdatedRows } = await db
        .updateTable('turns')
        .set((eb) => ({
          // Another worker may have come further.
          archived_through: eb
            .case()
            .when('archived_through', '<', through)
            .then(through)
            .else(eb.ref('archived_through'))
            .end(),
          ...(complete && { archived: 1 }),
        }))
        .where('id', '=', turnId)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return false;
      for (let from = 0; from < entries.length; from += ROWS_AT_ONCE) {
        const rows = entries.slice(from, from + ROWS_AT_ONCE).map(({ ordinal, record }) => ({
          turn_id: turnId,
          ordinal,
          record: JSON.stringify(record),
        }));
        await db
          .insertInto('archive')
          .values(rows)
          .onConflict((conflict) => conflict.columns(['turn_id', 'ordinal']).doNothing())
          .execute();
        await referToBlobs(
          db,
          turn.session_id,
          rows.map(({ record }) => record),
        );
      }
      return true;
    });
  }

  /** Entries from ordinal `from` on, in their order. */
  async read(turnId: string, from: number, limit: number): Promise<LogEntry[]> {
    if (from > MAX_ORDINAL) return [];
    const rows = await this.#db
      .selectFrom('archive')
      .select(['ordinal', 'record'])
      .where('turn_id', '=', turnId)
      .where('ordinal', '>=', from)
      .orderBy('ordinal')
      .limit(limit)
      .execute();
    return rows.map(({ ordinal, record }) => ({ ordinal, record: parse(record) }));
  }
}

function parse(record: string): LogRecord {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `add`
  return JSON.parse(record) as LogRecord;
}
