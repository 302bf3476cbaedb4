import type { Kysely } from 'kysely';
import type { LogEntry, LogRecord } from '../log/records.ts';
import type { Tables } from './schema.ts';

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

  /** Adds entries; `complete` if the log ends with them. Entries that are there already are left alone. */
  async add(turnId: string, entries: LogEntry[], complete: boolean): Promise<void> {
    await this.#db.transaction().execute(async (db) => {
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
      }
      const through = entries.at(-1)?.ordinal ?? 0;
      await db
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
        .execute();
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
