import { Kysely } from 'kysely';
import type { Logger } from 'pino';
import { Agents } from './agents.ts';
import { Archive } from './archive.ts';
import { BlobReferences } from './blob-references.ts';
import { dialectOf, type Database } from './database.ts';
import { Idempotency } from './idempotency.ts';
import { Keys } from './keys.ts';
import { checkDatabase, prepareDatabase } from './prepare.ts';
import { Retention } from './retention.ts';
import type { Tables } from './schema.ts';
import { Sessions } from './sessions.ts';
import { Turns } from './turns.ts';

/** The server's own database: agents, the index of sessions and turns, and the archive of logs. */
export class Catalog {
  readonly agents: Agents;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly archive: Archive;
  readonly blobReferences: BlobReferences;
  readonly retention: Retention;
  readonly idempotency: Idempotency;
  readonly keys: Keys;
  readonly #db: Kysely<Tables>;

  private constructor(db: Kysely<Tables>) {
    this.#db = db;
    this.agents = new Agents(db);
    this.sessions = new Sessions(db);
    this.turns = new Turns(db);
    this.archive = new Archive(db);
    this.blobReferences = new BlobReferences(db);
    this.retention = new Retention(db);
    this.idempotency = new Idempotency(db);
    this.keys = new Keys(db);
  }

  /** Opens the catalog and brings its schema up to date. @throws CatalogError */
  static async open(database: Database, log: Logger): Promise<Catalog> {
    await prepareDatabase(database, log);
    return new Catalog(new Kysely<Tables>({ dialect: dialectOf(database, log) }));
  }

  /** Opens the catalog of a server that runs, or has run, and leaves its schema as it is. @throws CatalogError */
  static async openExisting(database: Database, log: Logger): Promise<Catalog> {
    await checkDatabase(database, log);
    return new Catalog(new Kysely<Tables>({ dialect: dialectOf(database, log) }));
  }

  /** Throws if the catalog can't be written: away, full or read-only. */
  async check(now: string): Promise<void> {
    const claim = { scope: 'readiness', key: '', resourceId: '', sessionId: '', bodyHash: '', now };
    await this.idempotency.claim(claim, now);
  }

  async close(): Promise<void> {
    await this.#db.destroy();
  }
}
