import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Kysely, sql, type Dialect } from 'kysely';
import { Migrator, type Migration } from 'kysely/migration';
import type { Logger } from 'pino';
import { dialectOf, isCatalogUnavailable, type Database } from './database.ts';
import {
  appliedMigrations,
  hashMigrations,
  otherMigrations,
  storingHashes,
  type MigrationHashes,
  type MigrationTables,
} from './migration-hashes.ts';
import { BREAKING, migrations } from './migrations.ts';
import { isPostgresRejection, PgDialect } from './postgres.ts';
import { errorMessage, StartupError } from '../lib/errors.ts';

/** The catalog is unusable; the message says what to do about it. */
export class CatalogError extends StartupError {}

/** The database may be starting at the same time as this process. */
const CONNECT_TIMEOUT_MS = 10_000;
const RETRY_INTERVAL_MS = 200;

/**
 * Waits for the database and migrates it to the current schema. Several processes may do so concurrently.
 *
 * @throws CatalogError
 */
export function prepareDatabase(database: Database, log: Logger): Promise<void> {
  return whenAvailable(database, log, prepare);
}

/**
 * Waits for the database and checks its schema without changing it.
 *
 * @throws CatalogError also if the database has no catalog, or one whose schema this code cannot use
 */
export function checkDatabase(database: Database, log: Logger): Promise<void> {
  return whenAvailable(database, log, checkSchema);
}

async function whenAvailable(
  database: Database,
  log: Logger,
  work: (database: Database, log: Logger) => Promise<void>,
): Promise<void> {
  const deadline = Date.now() + CONNECT_TIMEOUT_MS;
  for (let isFirst = true; ; isFirst = false) {
    try {
      await work(database, log);
      return;
    } catch (error) {
      if (error instanceof CatalogError) throw error;
      const isTransient = isCatalogUnavailable(error) && !isPostgresRejection(error);
      if (!isTransient || Date.now() >= deadline) throw new CatalogError(advice(database, error), { cause: error });
      if (isFirst) log.warn({ err: error }, 'the catalog is unavailable; retrying');
      await sleep(RETRY_INTERVAL_MS);
    }
  }
}

async function prepare(database: Database, log: Logger): Promise<void> {
  const db = new Kysely<MigrationTables>({ dialect: migrationDialect(database, log) });
  try {
    if (database.kind === 'postgres') await checkEncoding(db);
    const hashes = await hashMigrations(dialectOf(database, log));
    await checkHashes(db, database, hashes);
    const all = { ...storingHashes(hashes), ...(await newerMigrations(db)) };
    const { error } = await new Migrator({
      db,
      provider: { getMigrations: () => Promise.resolve(all) },
    }).migrateToLatest();
    if (error) throw error;
  } finally {
    await db.destroy();
  }
}

async function checkSchema(database: Database, log: Logger): Promise<void> {
  // Opening the file would create it.
  if (database.kind === 'sqlite' && !existsSync(database.file)) throw noCatalog(database);
  const db = new Kysely<MigrationTables>({ dialect: dialectOf(database, log) });
  try {
    const applied = await appliedMigrations(db);
    if (applied.length === 0) throw noCatalog(database);
    const lacks = Object.keys(migrations).filter((name) => !applied.includes(name));
    const has = applied.filter((name) => !isUsable(name));
    if (lacks.length + has.length === 0) {
      await checkHashes(db, database, await hashMigrations(dialectOf(database, log)));
      return;
    }
    const differences = [...lacks.map((name) => `lacks ${name}`), ...has.map((name) => `has ${name}`)];
    throw new CatalogError(
      `the catalog belongs to another version of Everturn (it ${differences.join(', ')}): ` +
        `run this command with the version that the server runs`,
    );
  } finally {
    await db.destroy();
  }
}

function noCatalog(database: Database): CatalogError {
  const where = database.kind === 'sqlite' ? `at ${database.file}` : 'in the database of DATABASE_URL';
  return new CatalogError(
    `there is no catalog ${where}: check DATABASE_URL and EVERTURN_DATA. The server creates one when it starts`,
  );
}

/** @throws CatalogError if the migrations that the database has are others than those of this version */
async function checkHashes(db: Kysely<MigrationTables>, database: Database, hashes: MigrationHashes): Promise<void> {
  const others = await otherMigrations(db, database.kind, hashes);
  if (others.length === 0) return;
  throw new CatalogError(
    `the catalog was made by an unreleased version of Everturn, with another ${others.join(', ')}: start the version ` +
      'that made it, or start without that catalog: see Upgrade in docs/operations.md',
  );
}

/** Whether this version works on a database that has this migration, which may be that of a newer version. */
function isUsable(name: string): boolean {
  return Object.hasOwn(migrations, name) || (isNewer(name) && !name.endsWith(BREAKING));
}

function isNewer(name: string): boolean {
  return name > (Object.keys(migrations).at(-1) ?? '');
}

/**
 * The migrations that a newer version has applied, which count as known: during a deploy, and after a rollback,
 * processes of the older version start too.
 *
 * @throws CatalogError if one of them is breaking
 */
async function newerMigrations(db: Kysely<MigrationTables>): Promise<Record<string, Migration>> {
  const newer = (await appliedMigrations(db)).filter(isNewer);
  const breaking = newer.filter((name) => !isUsable(name));
  if (breaking.length > 0) {
    throw new CatalogError(
      `the catalog was migrated by a newer version, and this one cannot use it (${breaking.join(', ')}): ` +
        'start the newer version, or restore a backup',
    );
  }
  return Object.fromEntries(newer.map((name) => [name, { up: () => Promise.resolve() }]));
}

/**
 * No statement time-out: building an index on a large table, or waiting for another process's migration, takes long.
 */
function migrationDialect(database: Database, log: Logger): Dialect {
  if (database.kind === 'sqlite') return dialectOf(database, log);
  return new PgDialect({ ...database, connections: 1, statementMs: 0 }, log);
}

async function checkEncoding(db: Kysely<MigrationTables>): Promise<void> {
  const { rows } = await sql<{ encoding: string }>`select current_setting('server_encoding') as encoding`.execute(db);
  const encoding = rows[0]?.encoding;
  if (encoding === 'UTF8') return;
  throw new CatalogError(
    `the database of DATABASE_URL has the encoding ${encoding}, which cannot represent every character: ` +
      `create one with "create database ... encoding 'UTF8' template template0"`,
  );
}

function advice(database: Database, error: unknown): string {
  const reason = errorMessage(error);
  if (database.kind === 'sqlite') {
    return `the catalog ${database.file} cannot be opened (${reason}): check DATABASE_URL and EVERTURN_DATA`;
  }
  return (
    `the catalog cannot be opened (${reason}): check that the server of DATABASE_URL runs and is reachable, ` +
    `and that its user may create tables in the database`
  );
}
