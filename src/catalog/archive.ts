import type { Kysely } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { LogEntry, LogRecord } from '../core/records.ts';
import { referToBlobs, ROW_BATCH_SIZE } from './blob-references.ts';
import type { Tables } from './schema.ts';
import { touchSession } from './sessions.ts';

/** What the column holds on PostgreSQL; a client's cursor may point beyond it. */
const MAX_ORDINAL = 2 ** 31 - 1;

/** The logs of ended turns, and the ended parts of long running ones. Records stand here as they do in histories. */
export class Archive {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;

  constructor(db: Kysely<Tables>, cipher: Cipher) {
    this.#db = db;
    this.#cipher = cipher;
  }

  /**
   * Adds entries of a turn that is in the index; `complete` if the log ends with them. Gives those that were not there
   * already: whoever else archives the turn has added the others. Undefined if the turn's session was deleted: nothing
   * is added then.
   */
  async add(turnId: string, entries: LogEntry[], complete: boolean): Promise<LogEntry[] | undefined> {
    const last = entries.at(-1);
    if (!last) return [];
    return this.#db.transaction().execute(async (db) => {
      const row = db.selectFrom('turns').select(['session_id', 'archived_through']).where('id', '=', turnId);
      const turn = await row.executeTakeFirst();
      if (!turn || !(await touchSession(db, { id: turn.session_id, at: last.record.at }))) return undefined;
      // Read again, since from here on the session's row is held, and nobody else adds any. There are no gaps.
      const { archived_through: before } = (await row.executeTakeFirst()) ?? turn;
      const { numUpdatedRows } = await db
        .updateTable('turns')
        .set({ archived_through: Math.max(before, last.ordinal), ...(complete && { archived: 1 }) })
        .where('id', '=', turnId)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return undefined;
      const added = entries.filter(({ ordinal }) => ordinal > before);
      for (let from = 0; from < added.length; from += ROW_BATCH_SIZE) {
        const some = added.slice(from, from + ROW_BATCH_SIZE);
        const records = some.map(({ record }) => JSON.stringify(record));
        const rows = some.map(({ ordinal }, i) => ({
          turn_id: turnId,
          ordinal,
          record: this.#cipher.sealText(records[i] ?? '', aadForRecord(turnId, ordinal)),
        }));
        await db.insertInto('archive').values(rows).execute();
        await referToBlobs(db, turn.session_id, records);
      }
      return added;
    });
  }

  /** All entries of some turns, in their order, by the turns' ids. For a few entries each. */
  async readAll(turnIds: string[]): Promise<Map<string, LogEntry[]>> {
    const rows = await this.#db
      .selectFrom('archive')
      .selectAll()
      .where('turn_id', 'in', turnIds)
      .orderBy('turn_id')
      .orderBy('ordinal')
      .execute();
    const entries = new Map(turnIds.map((id): [string, LogEntry[]] => [id, []]));
    for (const { turn_id: id, ordinal, record } of rows) {
      entries.get(id)?.push({ ordinal, record: parse(this.#cipher.openText(record, aadForRecord(id, ordinal))) });
    }
    return entries;
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
    return rows.map(({ ordinal, record }) => ({
      ordinal,
      record: parse(this.#cipher.openText(record, aadForRecord(turnId, ordinal))),
    }));
  }
}

function aadForRecord(turnId: string, ordinal: number): string {
  return `archive/${turnId}/${ordinal}`;
}

function parse(record: string): LogRecord {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `add`
  return JSON.parse(record) as LogRecord;
}
