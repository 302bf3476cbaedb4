import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { SqliteDialect, type SqliteDatabase, type SqliteStatement } from 'kysely';

/** Kysely's SQLite dialect on Node's own SQLite. */
export function nodeSqliteDialect(file: string, sync: SqliteSync): SqliteDialect {
  return new SqliteDialect({ database: () => Promise.resolve(open(file, sync)) });
}

/**
 * What a commit survives: `normal`, a `kill -9` of any process; `full`, a power cut too, which costs a millisecond or
 * more for each commit.
 */
export type SqliteSync = 'normal' | 'full';

function open(file: string, sync: SqliteSync): SqliteDatabase {
  const database = new DatabaseSync(file);
  database.exec(`
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = ${sync};
    PRAGMA busy_timeout = 250;
    PRAGMA foreign_keys = ON;
  `);
  return {
    close: () => database.close(),
    prepare(sql: string): SqliteStatement {
      const statement = database.prepare(sql);
      return {
        reader: statement.columns().length > 0,
        all: (parameters) => statement.all(...values(parameters)),
        run: (parameters) => statement.run(...values(parameters)),
        // Kysely streams no query of ours; the type asks for it.
        iterate: (parameters) => statement.iterate(...values(parameters)),
      };
    },
  };
}

function values(parameters: readonly unknown[]): SQLInputValue[] {
  return parameters.map((value) => {
    if (value === null || typeof value === 'string' || typeof value === 'number') return value;
    throw new TypeError(`the catalog stores text, numbers and null, not a ${typeof value}`);
  });
}
