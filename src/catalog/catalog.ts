import { Kysely } from 'kysely';
import type { Logger } from 'pino';
import { NO_ENCRYPTION, type Cipher } from '../encryption/cipher.ts';
import { Agents } from './agents.ts';
import { Archive } from './archive.ts';
import { BlobReferences } from './blob-references.ts';
import { dialectOf, type Database } from './database.ts';
import { describeSchema } from './describe-schema.ts';
import { EncryptionKeys } from './encryption-keys.ts';
import { Idempotency } from './idempotency.ts';
import type { CatalogFeatures } from './log-reader.ts';
import { Keys } from './api-keys.ts';
import { Marks } from './marks.ts';
import { checkDatabase, prepareDatabase } from './migrate.ts';
import { ModelServers } from './model-servers.ts';
import { Outbox } from './outbox.ts';
import { Retention } from './retention.ts';
import type { Tables } from './schema.ts';
import { Sessions } from './sessions.ts';
import { Store } from './store.ts';
import { StoredBytes } from './stored-bytes.ts';
import { SubjectRoles } from './subject-roles.ts';
import { Turns } from './turns.ts';
import { Underived } from './underived.ts';

export interface CatalogOptions {
  db: Kysely<Tables>;
  kind: Database['kind'];
  schema: readonly string[];
  cipher: Cipher;
  log: Logger;
}

type Opened<C> = new (options: CatalogOptions) => C;

/**
 * The server's own database: agents, the index of sessions and turns, and the archive of logs. Abstract, since one that is
 * opened without the features loses the rows that they derive.
 */
export abstract class KernelCatalog extends Store {
  readonly agents = new Agents(this.context);
  readonly sessions = new Sessions(this.context);
  readonly turns = new Turns(this.context);
  readonly archive = new Archive(this.context);
  readonly blobReferences = new BlobReferences(this.context);
  readonly retention = new Retention(this.context);
  readonly idempotency = new Idempotency(this.context);
  readonly keys = new Keys(this.context);
  readonly subjectRoles = new SubjectRoles(this.context);
  readonly encryptionKeys = new EncryptionKeys(this.context);
  readonly marks = new Marks(this.context);
  readonly modelServers = new ModelServers(this.context);
  readonly outbox = this.context.outbox;
  readonly storedBytes = new StoredBytes(this.context);
  readonly underived = new Underived(this.context);
  readonly #kind: Database['kind'];
  /** Its tables, columns and indexes at the start. */
  readonly #schema: readonly string[];

  /** On a database that has the current schema: `open` makes sure of that. */
  constructor({ kind, schema, ...options }: CatalogOptions, features: CatalogFeatures) {
    super({ ...options, features, outbox: new Outbox(options.db, features.writeEvents) });
    this.#kind = kind;
    this.#schema = schema;
  }

  /**
   * Opens the catalog and migrates its schema. Without a cipher, encrypted values cannot be read, and the caller must
   * write nothing that has to be encrypted.
   *
   * @throws CatalogError
   */
  static async open<C>(this: Opened<C>, database: Database, log: Logger, cipher = NO_ENCRYPTION): Promise<C> {
    await prepareDatabase(database, log);
    return new this(await connect(database, log, cipher));
  }

  /** Opens the existing catalog of a server without changing its schema. @throws CatalogError */
  static async openExisting<C>(this: Opened<C>, database: Database, log: Logger, cipher = NO_ENCRYPTION): Promise<C> {
    await checkDatabase(database, log);
    return new this(await connect(database, log, cipher));
  }

  /**
   * Throws if the catalog cannot be used: it is unreachable, full or read-only, or lacks a table, column or index that it
   * had at the start, because an older backup was restored under the running server.
   */
  async check(now: string): Promise<void> {
    const present = new Set(await describeSchema(this.db, this.#kind));
    const missing = this.#schema.filter((line) => !present.has(line));
    if (missing.length > 0) {
      throw new Error(
        `it is incomplete: ${missing.length} of its columns and indexes are missing, first ${missing[0]}`,
      );
    }
    const claim = { scope: 'readiness', key: '', resourceId: '', sessionId: '', bodyHash: '', now };
    await this.idempotency.claim(claim, now);
  }

  async close(): Promise<void> {
    await this.db.destroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

async function connect(database: Database, log: Logger, cipher: Cipher): Promise<CatalogOptions> {
  const { kind } = database;
  const db = new Kysely<Tables>({ dialect: dialectOf(database, log) });
  return { db, kind, schema: await describeSchema(db, kind), cipher, log };
}
