import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Kysely, sql } from 'kysely';
import { pino } from 'pino';
import { inject } from 'vitest';
import { dialectOf } from '../../src/catalog/database.ts';
import type { Tables } from '../../src/catalog/schema.ts';
import { loadConfig } from '../../src/config.ts';
import { createDatabase, runSql } from './sql.ts';

/** A database for a catalog: on PostgreSQL in the vitest project `postgres`, otherwise a SQLite file. */
export interface TestDatabase {
  /** The value for `DATABASE_URL`. */
  url: string;
  /** Its rows, which the test can read and change. */
  rows: Kysely<Tables>;
  /** Makes it unavailable; returns the function that makes it available again. */
  takeAway: () => Promise<() => Promise<void>>;
  /** Whether a statement waits for another transaction. On SQLite none waits for long: it fails. */
  hasWaiting: () => Promise<boolean>;
  close: () => Promise<void>;
}

/**
 * @param folder for a SQLite file
 * @param server the PostgreSQL server, if the test has its own
 */
export async function createTestDatabase(folder: string, server = inject('postgresUrl')): Promise<TestDatabase> {
  const file = path.join(folder, 'catalog.db');
  const url = server === undefined ? `sqlite:${file}` : await createDatabase(server);
  const rows = openRows(url);
  const takeAway = server === undefined ? () => lock(file) : () => refuseConnections(server, url);
  const hasWaiting = server === undefined ? () => Promise.resolve(false) : () => waitsForLock(rows);
  return { url, rows, takeAway: () => Promise.resolve(takeAway()), hasWaiting, close: () => rows.destroy() };
}

export function openRows(url: string): Kysely<Tables> {
  const { database } = loadConfig({ DATABASE_URL: url });
  return new Kysely<Tables>({ dialect: dialectOf(database, pino({ level: 'silent' })) });
}

/** Another connection locks the file: every write of the server fails as on a full disk. */
function lock(file: string): () => Promise<void> {
  const other = new DatabaseSync(file);
  other.exec('BEGIN EXCLUSIVE');
  return () => {
    other.exec('ROLLBACK');
    other.close();
    return Promise.resolve();
  };
}

async function waitsForLock(rows: Kysely<Tables>): Promise<boolean> {
  const waiting = await sql`
    select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`.execute(rows);
  return waiting.rows.length > 0;
}

/** Rejects connections, as an operator does during a restore. */
async function refuseConnections(server: string, url: string): Promise<() => Promise<void>> {
  const name = new URL(url).pathname.slice(1);
  await runSql(
    server,
    `alter database ${name} with allow_connections false`,
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`,
  );
  return async () => void (await runSql(server, `alter database ${name} with allow_connections true`));
}
