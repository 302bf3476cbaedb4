import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { SqliteAdapter, SqliteDialect, type DialectAdapter, type SqliteDatabase, type SqliteStatement } from 'kysely';
import { LRUCache } from 'lru-cache';
import { storableText } from './storable-text.ts';

/**
 * The durability of a commit: `normal` survives a `kill -9` of any process; `full` also a power cut, at the cost of a
 * millisecond or more for each commit.
 */
export type SqliteSync = 'normal' | 'full';

/** Kysely's SQLite dialect on `node:sqlite`. */
export class NodeSqliteDialect extends SqliteDialect {
  constructor({ file, sync }: { file: string; sync: SqliteSync }) {
    super({ database: () => Promise.resolve(open(file, sync)) });
  }

  override createAdapter(): DialectAdapter {
    return new NodeSqliteAdapter();
  }
}

/**
 * Runs migrations in a transaction: a killed one leaves nothing behind, and of two concurrent ones, one has to retry.
 */
class NodeSqliteAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

/** SQLite's result codes for a database that is busy, locked, read-only, failing, full or impossible to open. */
const UNAVAILABLE = new Set([5, 6, 8, 10, 13, 14]);

export function isSqliteUnavailable(error: unknown): boolean {
  if (!(error instanceof Error && 'code' in error && error.code === 'ERR_SQLITE_ERROR')) return false;
  // The low byte is the primary result code; the higher bytes are the extended code.
  return 'errcode' in error && typeof error.errcode === 'number' && UNAVAILABLE.has(error.errcode & 0xff);
}

/**
 * The characters of all statements that are kept prepared: the catalog's 70 or so have 140 each. A statement also keeps
 * the values that were last bound to it, so long ones, which insert many rows, are prepared each time.
 */
const PREPARED = { maxSize: 50_000, maxEntrySize: 2_000 };

function open(file: string, sync: SqliteSync): SqliteDatabase {
  const database = new DatabaseSync(file);
  database.exec(`
    PRAGMA busy_timeout = 250;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = ${sync};
    PRAGMA foreign_keys = ON;
  `);
  const prepare = (sql: string): SqliteStatement => {
    const statement = database.prepare(sql);
    return {
      reader: statement.columns().length > 0,
      all: (parameters) => statement.all(...values(parameters)),
      run: (parameters) => statement.run(...values(parameters)),
      // Required by the type; the catalog streams no query.
      iterate: (parameters) => statement.iterate(...values(parameters)),
    };
  };
  const prepared = new LRUCache<string, SqliteStatement>({
    ...PREPARED,
    sizeCalculation: (_statement, sql) => sql.length,
    memoMethod: prepare,
  });
  return { close: () => database.close(), prepare: (sql) => prepared.memo(sql) };
}

function values(parameters: readonly unknown[]): SQLInputValue[] {
  return parameters.map((value) => {
    if (typeof value === 'string') return storableText(value);
    if (value === null || typeof value === 'number') return value;
    throw new TypeError(`the catalog stores text, numbers and null, not a ${typeof value}`);
  });
}
