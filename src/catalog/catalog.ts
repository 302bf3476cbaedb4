import { Kysely, Migrator, type Dialect } from 'kysely';
import { Agents } from './agents.ts';
import { Archive } from './archive.ts';
import { Idempotency } from './idempotency.ts';
import { Keys } from './keys.ts';
import { migrations } from './migrations.ts';
import type { Tables } from './schema.ts';
import { Sessions } from './sessions.ts';
import { Turns } from './turns.ts';

/** The server's own database: agents, the index of sessions and turns, and the archive of logs. */
export class Catalog {
  readonly agents: Agents;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly archive: Archive;
  readonly idempotency: Idempotency;
  readonly keys: Keys;
  readonly #db: Kysely<Tables>;

  private constructor(db: Kysely<Tables>) {
    this.#db = db;
    this.agents = new Agents(db);
    this.sessions = new Sessions(db);
    this.turns = new Turns(db);
    this.archive = new Archive(db);
    this.idempotency = new Idempotency(db);
    this.keys = new Keys(db);
  }

  /** Opens the catalog and brings its schema up to date. */
  static async open(dialect: Dialect): Promise<Catalog> {
    const db = new Kysely<Tables>({ dialect });
    const migrator = new Migrator({ db, provider: { getMigrations: () => Promise.resolve(migrations) } });
    const { error } = await migrator.migrateToLatest();
    if (error) {
      await db.destroy();
      throw error instanceof Error ? error : new Error('the catalog could not be migrated', { cause: error });
    }
    return new Catalog(db);
  }

  /** Throws if the catalog can't be written: away, full or read-only. */
  async check(now: string): Promise<void> {
    const claim = { scope: 'readiness', key: '', resourceId: '', bodyHash: '', now };
    await this.idempotency.claim(claim, now);
  }

  async close(): Promise<void> {
    await this.#db.destroy();
  }
}

/** SQLite's result codes for a database that is busy, locked, read-only, failing, full or out of reach. */
const UNAVAILABLE = new Set([5, 6, 8, 10, 13, 14]);

/** True for the errors of a database that may work again later. */
export function isCatalogUnavailable(error: unknown): boolean {
  if (!(error instanceof Error && 'code' in error && error.code === 'ERR_SQLITE_ERROR')) return false;
  // The low byte is the primary code; the rest says more about it.
  return 'errcode' in error && typeof error.errcode === 'number' && UNAVAILABLE.has(error.errcode & 0xff);
}
