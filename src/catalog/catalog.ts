import { Kysely } from 'kysely';
import type { Logger } from 'pino';
import { NO_ENCRYPTION, type Cipher } from '../encryption/cipher.ts';
import { Agents } from './agents.ts';
import { Archive } from './archive.ts';
import { BlobReferences } from './blob-references.ts';
import { dialectOf, type Database } from './database.ts';
import { EncryptionKeys } from './encryption-keys.ts';
import { Idempotency } from './idempotency.ts';
import { Keys } from './api-keys.ts';
import { Marks } from './marks.ts';
import { McpGrants } from './mcp-grants.ts';
import { McpSignIns } from './mcp-sign-ins.ts';
import { checkDatabase, prepareDatabase } from './migrate.ts';
import { Retention } from './retention.ts';
import type { Tables } from './schema.ts';
import { Sessions } from './sessions.ts';
import { TurnPlaces } from './turn-places.ts';
import { Turns } from './turns.ts';

/** The server's own database: agents, the index of sessions and turns, and the archive of logs. */
export class Catalog {
  readonly agents: Agents;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly turnPlaces: TurnPlaces;
  readonly archive: Archive;
  readonly blobReferences: BlobReferences;
  readonly retention: Retention;
  readonly idempotency: Idempotency;
  readonly keys: Keys;
  readonly encryptionKeys: EncryptionKeys;
  readonly marks: Marks;
  readonly mcpSignIns: McpSignIns;
  readonly mcpGrants: McpGrants;
  readonly #db: Kysely<Tables>;

  private constructor(db: Kysely<Tables>, cipher: Cipher) {
    this.#db = db;
    this.agents = new Agents(db, cipher);
    this.sessions = new Sessions(db, cipher);
    this.turns = new Turns(db, cipher);
    this.turnPlaces = new TurnPlaces(db);
    this.archive = new Archive(db, cipher);
    this.blobReferences = new BlobReferences(db);
    this.retention = new Retention(db);
    this.idempotency = new Idempotency(db, cipher);
    this.keys = new Keys(db);
    this.encryptionKeys = new EncryptionKeys(db);
    this.marks = new Marks(db);
    this.mcpSignIns = new McpSignIns(db, cipher);
    this.mcpGrants = new McpGrants(db, cipher);
  }

  /**
   * Opens the catalog and migrates its schema. Without a cipher, encrypted values cannot be read, and the caller must
   * write nothing that has to be encrypted.
   *
   * @throws CatalogError
   */
  static async open(database: Database, log: Logger, cipher = NO_ENCRYPTION): Promise<Catalog> {
    await prepareDatabase(database, log);
    return new Catalog(new Kysely<Tables>({ dialect: dialectOf(database, log) }), cipher);
  }

  /** Opens the existing catalog of a server without changing its schema. @throws CatalogError */
  static async openExisting(database: Database, log: Logger, cipher = NO_ENCRYPTION): Promise<Catalog> {
    await checkDatabase(database, log);
    return new Catalog(new Kysely<Tables>({ dialect: dialectOf(database, log) }), cipher);
  }

  /** Throws if the catalog cannot be written: it is unreachable, full or read-only. */
  async check(now: string): Promise<void> {
    const claim = { scope: 'readiness', key: '', resourceId: '', sessionId: '', bodyHash: '', now };
    await this.idempotency.claim(claim, now);
  }

  async close(): Promise<void> {
    await this.#db.destroy();
  }
}
