import type { Dialect } from 'kysely';
import type { Logger } from 'pino';
import { isSqliteUnavailable, NodeSqliteDialect, type SqliteSync } from './sqlite.ts';
import { isPostgresUnavailable, PgDialect } from './postgres.ts';

/** Where the catalog is kept. */
export type Database =
  | { kind: 'sqlite'; file: string; sync: SqliteSync }
  /** The URL has a password in it. */
  | { kind: 'postgres'; url: string };

export function dialectOf(database: Database, log: Logger): Dialect {
  return database.kind === 'sqlite' ? new NodeSqliteDialect(database) : new PgDialect(database, log);
}

/** True for the errors of a database that may work again later. */
export function isCatalogUnavailable(error: unknown): boolean {
  return isSqliteUnavailable(error) || isPostgresUnavailable(error);
}
