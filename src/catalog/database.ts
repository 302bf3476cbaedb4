import type { Dialect } from 'kysely';
import type { Logger } from 'pino';
import { isSqliteUnavailable, NodeSqliteDialect, type SqliteSync } from './sqlite.ts';
import { isPostgresUnavailable, PgDialect } from './postgres.ts';

/** The database that holds the catalog. */
export type Database =
  | { kind: 'sqlite'; file: string; sync: SqliteSync }
  /** The URL contains a password. */
  | { kind: 'postgres'; url: string };

export function dialectOf(database: Database, log: Logger): Dialect {
  return database.kind === 'sqlite' ? new NodeSqliteDialect(database) : new PgDialect(database, log);
}

/** Whether an error means that the database is unavailable, so that a later retry may succeed. */
export function isCatalogUnavailable(error: unknown): boolean {
  return isSqliteUnavailable(error) || isPostgresUnavailable(error);
}
