import { Kysely } from 'kysely';
import type { Logger } from 'pino';
import { NO_ENCRYPTION, type Cipher } from '../encryption/cipher.ts';
import { ActionIndex } from './action-index.ts';
import { Actions } from './actions.ts';
import { AgentDefinitions } from './agent-definitions.ts';
import { AgentParts } from './agent-parts.ts';
import { Agents } from './agents.ts';
import { Archive } from './archive.ts';
import { BlobReferences } from './blob-references.ts';
import { dialectOf, type Database } from './database.ts';
import { describeSchema } from './describe-schema.ts';
import { EncryptionKeys } from './encryption-keys.ts';
import { IdleTimeouts } from './idle-timeouts.ts';
import { Idempotency } from './idempotency.ts';
import { KeptAnswers } from './kept-answers.ts';
import { Keys } from './api-keys.ts';
import { Delegations } from './delegations.ts';
import { Deliveries } from './deliveries.ts';
import { Marks } from './marks.ts';
import { McpGrants } from './mcp-grants.ts';
import { McpSignIns } from './mcp-sign-ins.ts';
import { checkDatabase, prepareDatabase } from './migrate.ts';
import { ModelServers } from './model-servers.ts';
import { Outbox } from './outbox.ts';
import { Retention } from './retention.ts';
import { RunSecrets } from './run-secrets.ts';
import { RunSummaries } from './run-summaries.ts';
import type { Tables } from './schema.ts';
import { SessionFeedback } from './session-feedback.ts';
import { ScheduleRuns } from './schedule-runs.ts';
import { Schedules } from './schedules.ts';
import { SessionRequests } from './session-requests.ts';
import { SessionList } from './session-list.ts';
import { SessionSlots } from './session-slots.ts';
import { Sessions } from './sessions.ts';
import { SharedSessions } from './shared-sessions.ts';
import { Spending } from './spending.ts';
import { StoredBytes } from './stored-bytes.ts';
import { SubjectRoles } from './subject-roles.ts';
import { TurnPlaces } from './turn-places.ts';
import { Turns } from './turns.ts';
import { Underived } from './underived.ts';
import { Webhooks } from './webhooks.ts';

interface CatalogOptions {
  db: Kysely<Tables>;
  kind: Database['kind'];
  schema: readonly string[];
  cipher: Cipher;
  log: Logger;
}

/** The server's own database: agents, the index of sessions and turns, and the archive of logs. */
export class Catalog {
  readonly agents: Agents;
  readonly agentDefinitions: AgentDefinitions;
  readonly agentParts: AgentParts;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly turnPlaces: TurnPlaces;
  readonly delegations: Delegations;
  readonly archive: Archive;
  readonly blobReferences: BlobReferences;
  readonly retention: Retention;
  readonly idempotency: Idempotency;
  readonly keys: Keys;
  readonly subjectRoles: SubjectRoles;
  readonly encryptionKeys: EncryptionKeys;
  readonly marks: Marks;
  readonly modelServers: ModelServers;
  readonly mcpSignIns: McpSignIns;
  readonly mcpGrants: McpGrants;
  readonly outbox: Outbox;
  readonly actions: Actions;
  readonly keptAnswers: KeptAnswers;
  readonly webhooks: Webhooks;
  readonly deliveries: Deliveries;
  readonly spending: Spending;
  readonly sessionRequests: SessionRequests;
  readonly sharedSessions: SharedSessions;
  readonly sessionFeedback: SessionFeedback;
  readonly schedules: Schedules;
  readonly scheduleRuns: ScheduleRuns;
  readonly sessionSlots: SessionSlots;
  readonly storedBytes: StoredBytes;
  readonly sessionList: SessionList;
  readonly idleTimeouts: IdleTimeouts;
  readonly runSecrets: RunSecrets;
  readonly runSummaries: RunSummaries;
  readonly underived: Underived;
  readonly #db: Kysely<Tables>;
  readonly #kind: Database['kind'];
  /** Its tables, columns and indexes at the start. */
  readonly #schema: readonly string[];

  /** On a database that has the current schema: `open` makes sure of that. */
  constructor({ db, kind, schema, cipher, log }: CatalogOptions) {
    this.#db = db;
    this.#kind = kind;
    this.#schema = schema;
    this.outbox = new Outbox(db);
    const index = { cipher, outbox: this.outbox, actions: new ActionIndex(cipher) };
    this.agents = new Agents(db, cipher);
    this.agentDefinitions = new AgentDefinitions(db, cipher, this.agents);
    this.agentParts = new AgentParts(db, cipher);
    this.sessions = new Sessions(db, index);
    this.turns = new Turns(db, index);
    this.turnPlaces = new TurnPlaces(db);
    this.delegations = new Delegations(db);
    this.archive = new Archive(db, { ...index, log });
    this.actions = new Actions(db, index.actions);
    this.keptAnswers = new KeptAnswers(index);
    this.webhooks = new Webhooks(db, cipher);
    this.deliveries = new Deliveries(db);
    this.blobReferences = new BlobReferences(db);
    this.retention = new Retention(db);
    this.idempotency = new Idempotency(db, cipher);
    this.keys = new Keys(db);
    this.subjectRoles = new SubjectRoles(db);
    this.encryptionKeys = new EncryptionKeys(db);
    this.marks = new Marks(db);
    this.modelServers = new ModelServers(db);
    this.mcpSignIns = new McpSignIns(db, index);
    this.mcpGrants = new McpGrants(db, cipher);
    this.spending = new Spending(db);
    this.sessionRequests = new SessionRequests(db, cipher);
    this.sharedSessions = new SharedSessions(db);
    this.sessionFeedback = new SessionFeedback(db, cipher);
    this.schedules = new Schedules(db, cipher);
    this.scheduleRuns = new ScheduleRuns(db, cipher);
    this.sessionSlots = new SessionSlots(db, index);
    this.storedBytes = new StoredBytes(db);
    this.sessionList = new SessionList(db, cipher);
    this.idleTimeouts = new IdleTimeouts(db, this.outbox);
    this.runSecrets = new RunSecrets(db, cipher);
    this.runSummaries = new RunSummaries(db, cipher);
    this.underived = new Underived(db, index);
  }

  /**
   * Opens the catalog and migrates its schema. Without a cipher, encrypted values cannot be read, and the caller must
   * write nothing that has to be encrypted.
   *
   * @throws CatalogError
   */
  static async open(database: Database, log: Logger, cipher = NO_ENCRYPTION): Promise<Catalog> {
    await prepareDatabase(database, log);
    return Catalog.#connect(database, log, cipher);
  }

  /** Opens the existing catalog of a server without changing its schema. @throws CatalogError */
  static async openExisting(database: Database, log: Logger, cipher = NO_ENCRYPTION): Promise<Catalog> {
    await checkDatabase(database, log);
    return Catalog.#connect(database, log, cipher);
  }

  static async #connect(database: Database, log: Logger, cipher: Cipher): Promise<Catalog> {
    const { kind } = database;
    const db = new Kysely<Tables>({ dialect: dialectOf(database, log) });
    return new Catalog({ db, kind, schema: await describeSchema(db, kind), cipher, log });
  }

  /**
   * Throws if the catalog cannot be used: it is unreachable, full or read-only, or lacks a table, column or index that it
   * had at the start, because an older backup was restored under the running server.
   */
  async check(now: string): Promise<void> {
    const present = new Set(await describeSchema(this.#db, this.#kind));
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
    await this.#db.destroy();
  }
}
