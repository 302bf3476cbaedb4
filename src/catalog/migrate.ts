import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Kysely, Migrator, sql, type Dialect } from 'kysely';
import type { Logger } from 'pino';
import { dialectOf, isCatalogUnavailable, type Database } from './database.ts';
import { migrations } from './migrations.ts';
import { isPostgresRefusal, PgDialect } from './postgres.ts';
import { errorMessage, StartupError } from '../lib/errors.ts';

/** The catalog can't be used; the message says what to do about it. */
export class CatalogError extends StartupError {
  static {
    this.prototype.name = 'CatalogError';
  }
}

/** The database may be starting, like us. */
const PATIENCE_MS = 10_000;
const PAUSE_MS = 200;

/**
 * Waits for the database, and brings its schema up to date; several processes may do so at once.
 *
 * @throws CatalogError
 */
export function prepareDatabase(database: Database, log: Logger): Promise<void> {
  return whenAvailable(database, log, prepare);
}

/**
 * Waits for the database, and changes nothing.
 *
 * @throws CatalogError also if there is no catalog in it, or one with another schema than this code's
 */
export function checkDatabase(database: Database, log: Logger): Promise<void> {
  return whenAvailable(database, log, checkSchema);
}

async function whenAvailable(
  database: Database,
  log: Logger,
  work: (database: Database, log: Logger) => Promise<void>,
): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  for (let isFirst = true; ; isFirst = false) {
    try {
      await work(database, log);
      return;
    } catch (error) {
      if (error instanceof CatalogError) throw error;
      const mayPass = isCatalogUnavailable(error) && !isPostgresRefusal(error);
      if (!mayPass || Date.now() >= deadline) throw new CatalogError(advice(database, error), { cause: error });
      if (isFirst) log.warn({ err: error }, 'the catalog is not available; waiting for it');
      await sleep(PAUSE_MS);
    }
  }
}

async function prepare(database: Database, log: Logger): Promise<void> {
  const db = new Kysely<unknown>({ dialect: migrationDialect(database, log) });
  try {
    if (database.kind === 'postgres') await checkEncoding(db);
    const { error } = await migratorOf(db).migrateToLatest();
    if (error) throw error;
  } finally {
    await db.destroy();
  }
}

async function checkSchema(database: Database, log: Logger): Promise<void> {
  // To open a file would make it.
  if (database.kind === 'sqlite' && !existsSync(database.file)) throw noCatalog(database);
  const db = new Kysely<{ kysely_migration: { name: string } }>({ dialect: dialectOf(database, log) });
  try {
    const ours = await migratorOf(db).getMigrations();
    if (ours.every(({ executedAt }) => executedAt === undefined)) throw noCatalog(database);
    const theirs = await db.selectFrom('kysely_migration').select('name').execute();
    const lacks = ours.filter(({ executedAt }) => executedAt === undefined).map(({ name }) => `lacks ${name}`);
    const has = theirs.filter(({ name }) => !Object.hasOwn(migrations, name)).map(({ name }) => `has ${name}`);
    if (lacks.length + has.length === 0) return;
    throw new CatalogError(
      `the catalog is of another version of Everturn (it ${[...lacks, ...has].join(', ')}): ` +
        `use the command of the version that its server runs`,
    );
  } finally {
    await db.destroy();
  }
}

function noCatalog(database: Database): CatalogError {
  const where = database.kind === 'sqlite' ? `at ${database.file}` : 'in the database of DATABASE_URL';
  return new CatalogError(
    `there is no catalog ${where}: check DATABASE_URL and EVERTURN_DATA. A server that starts makes one`,
  );
}

function migratorOf<T>(db: Kysely<T>): Migrator {
  return new Migrator({ db, provider: { getMigrations: () => Promise.resolve(migrations) } });
}

/** An index on a large table takes its time, and so does another process of which this one waits for the end. */
function migrationDialect(database: Database, log: Logger): Dialect {
  if (database.kind === 'sqlite') return dialectOf(database, log);
  return new PgDialect({ ...database, connections: 1, statementMs: 0 }, log);
}

async function checkEncoding(db: Kysely<unknown>): Promise<void> {
  const { rows } = await sql<{ encoding: string }>`select current_setting('server_encoding') as encoding`.execute(db);
  const encoding = rows[0]?.encoding;
  if (encoding === 'UTF8') return;
  throw new CatalogError(
    `the database of DATABASE_URL stores text as ${encoding}, which does not have every character: ` +
      `create one with "create database ... encoding 'UTF8' template template0"`,
  );
}

function advice(database: Database, error: unknown): string {
  const reason = errorMessage(error);
  if (database.kind === 'sqlite') {
    return `the catalog ${database.file} can not be used (${reason}): check DATABASE_URL and EVERTURN_DATA`;
  }
  return (
    `the catalog can not be used (${reason}): check that the server of DATABASE_URL runs and can be reached from here, ` +
    `and that its user may create tables in its database`
  );
}
