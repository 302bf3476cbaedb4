import { sql, type Kysely, type Migration } from 'kysely';

/** In their order; a migration that has been released is never changed. They run on SQLite and on PostgreSQL. */
export const migrations: Record<string, Migration> = {
  '0001-sessions-and-turns': {
    async up(db: Kysely<unknown>): Promise<void> {
      await db.schema
        .createTable('specs')
        .addColumn('hash', 'text', (c) => c.primaryKey())
        .addColumn('spec', 'text', (c) => c.notNull())
        .execute();
      await db.schema
        .createTable('agents')
        .addColumn('name', 'text', (c) => c.primaryKey())
        .addColumn('version', 'integer', (c) => c.notNull())
        .addColumn('spec_hash', 'text', (c) => c.notNull().references('specs.hash'))
        .addColumn('created_at', 'text', (c) => c.notNull())
        .addColumn('updated_at', 'text', (c) => c.notNull())
        .execute();
      await db.schema
        .createTable('agent_versions')
        .addColumn('agent_name', 'text', (c) => c.notNull())
        .addColumn('version', 'integer', (c) => c.notNull())
        .addColumn('spec_hash', 'text', (c) => c.notNull().references('specs.hash'))
        .addColumn('created_at', 'text', (c) => c.notNull())
        .addPrimaryKeyConstraint('agent_versions_key', ['agent_name', 'version'])
        .execute();
      await db.schema
        .createTable('sessions')
        .addColumn('id', 'text', (c) => c.primaryKey())
        .addColumn('type', 'text', (c) => c.notNull())
        .addColumn('agent_name', 'text')
        .addColumn('agent_version', 'integer')
        .addColumn('spec_hash', 'text', (c) => c.notNull().references('specs.hash'))
        .addColumn('title', 'text')
        .addColumn('subject_id', 'text', (c) => c.notNull())
        .addColumn('subject_type', 'text', (c) => c.notNull())
        .addColumn('subject_slug', 'text', (c) => c.notNull())
        .addColumn('metadata', 'text')
        .addColumn('closed', 'integer', (c) => c.notNull().defaultTo(0))
        .addColumn('created_at', 'text', (c) => c.notNull())
        .addColumn('updated_at', 'text', (c) => c.notNull())
        .execute();
      await db.schema
        .createTable('turns')
        .addColumn('id', 'text', (c) => c.primaryKey())
        .addColumn('session_id', 'text', (c) => c.notNull())
        .addColumn('previous_turn_id', 'text')
        .addColumn('sequence', 'integer')
        .addColumn('created_at', 'text', (c) => c.notNull())
        .addColumn('archived_through', 'integer', (c) => c.notNull().defaultTo(0))
        .addColumn('archived', 'integer', (c) => c.notNull().defaultTo(0))
        .execute();
      await db.schema.createIndex('turns_by_session').on('turns').columns(['session_id', 'sequence']).execute();
      await db.schema.createIndex('turns_by_previous').on('turns').columns(['previous_turn_id']).execute();
      await db.schema
        .createTable('archive')
        .addColumn('turn_id', 'text', (c) => c.notNull())
        .addColumn('ordinal', 'integer', (c) => c.notNull())
        .addColumn('record', 'text', (c) => c.notNull())
        .addPrimaryKeyConstraint('archive_key', ['turn_id', 'ordinal'])
        .execute();
      await db.schema
        .createTable('idempotency')
        .addColumn('scope', 'text', (c) => c.notNull())
        .addColumn('key', 'text', (c) => c.notNull())
        .addColumn('resource_id', 'text', (c) => c.notNull())
        .addColumn('body_hash', 'text', (c) => c.notNull())
        .addColumn('created_at', 'text', (c) => c.notNull())
        .addPrimaryKeyConstraint('idempotency_key', ['scope', 'key'])
        .execute();
    },
  },
  '0002-lists-and-ends-of-sessions': {
    async up(db: Kysely<unknown>): Promise<void> {
      await db.schema
        .alterTable('sessions')
        .addColumn('active_at', 'text', (c) => c.notNull().defaultTo(''))
        .execute();
      for (const column of ['unswept_since', 'deleted_at', 'removal_at']) {
        await db.schema.alterTable('sessions').addColumn(column, 'text').execute();
      }
      await sql`update sessions set active_at = updated_at, unswept_since = updated_at`.execute(db);
      await db.schema.alterTable('specs').addColumn('retention_days', 'integer').execute();
      await db.schema
        .alterTable('idempotency')
        .addColumn('session_id', 'text', (c) => c.notNull().defaultTo(''))
        .execute();
      await db.schema
        .createTable('blob_references')
        .addColumn('session_id', 'text', (c) => c.notNull())
        .addColumn('blob', 'text', (c) => c.notNull())
        .addPrimaryKeyConstraint('blob_references_key', ['session_id', 'blob'])
        .execute();
      for (const [name, table, columns] of [
        // These two are as wide as they are because SQLite, which knows no numbers of rows, would take them for other
        // lists too if they were narrower than the indexes of those.
        [
          'sessions_by_type',
          'sessions',
          ['type', 'created_at', 'id', 'agent_name', 'subject_id', 'subject_slug', 'subject_type', 'deleted_at'],
        ],
        [
          'sessions_by_subject',
          'sessions',
          ['type', 'subject_id', 'created_at', 'id', 'agent_name', 'subject_slug', 'subject_type'],
        ],
        ['sessions_by_agent', 'sessions', ['type', 'agent_name', 'created_at', 'id']],
        ['sessions_by_slug', 'sessions', ['type', 'subject_slug', 'created_at', 'id']],
        ['sessions_by_subject_and_agent', 'sessions', ['type', 'subject_id', 'agent_name', 'created_at', 'id']],
        ['sessions_by_version', 'sessions', ['agent_name', 'agent_version', 'active_at']],
        ['sessions_by_spec', 'sessions', ['spec_hash', 'agent_version', 'active_at']],
        ['sessions_unswept', 'sessions', ['unswept_since']],
        ['sessions_to_remove', 'sessions', ['removal_at', 'id']],
        ['agents_by_spec', 'agents', ['spec_hash']],
        ['agent_versions_by_spec', 'agent_versions', ['spec_hash']],
        ['specs_by_retention', 'specs', ['retention_days', 'hash']],
        ['idempotency_by_session', 'idempotency', ['session_id']],
      ] satisfies [string, string, string[]][]) {
        await db.schema.createIndex(name).on(table).columns(columns).execute();
      }
      await referToArchivedBlobs(db);
    },
  },
  '0003-api-keys': {
    async up(db: Kysely<unknown>): Promise<void> {
      await db.schema
        .createTable('api_keys')
        .addColumn('id', 'text', (c) => c.primaryKey())
        .addColumn('hash', 'text', (c) => c.notNull().unique())
        .addColumn('name', 'text', (c) => c.notNull())
        .addColumn('role', 'text', (c) => c.notNull())
        .addColumn('created_at', 'text', (c) => c.notNull())
        .addColumn('expires_at', 'text')
        .addColumn('last_used_at', 'text')
        .addColumn('revoked_at', 'text')
        .execute();
    },
  },
  '0009-unarchived-turns': {
    async up(db: Kysely<unknown>): Promise<void> {
      await db.schema
        .createIndex('turns_unarchived')
        .on('turns')
        .column('created_at')
        .where(sql.ref('archived'), '=', 0)
        .execute();
    },
  },
  '0010-unused-specs': {
    async up(db: Kysely<unknown>): Promise<void> {
      await db.schema.alterTable('specs').addColumn('unused_since', 'text').execute();
      await db.schema.createIndex('specs_unused').on('specs').column('unused_since').execute();
      // Nobody has noted which are; those in use are found out when they are due.
      await sql`update specs set unused_since = ${new Date().toISOString()}`.execute(db);
    },
  },
  '0011-encryption-keys': {
    async up(db: Kysely<unknown>): Promise<void> {
      await db.schema
        .createTable('encryption_keys')
        .addColumn('id', 'text', (c) => c.primaryKey())
        .addColumn('fingerprint', 'text', (c) => c.notNull())
        .addColumn('created_at', 'text', (c) => c.notNull())
        .execute();
    },
  },
  '0012-marks': {
    async up(db: Kysely<unknown>): Promise<void> {
      await db.schema
        .createTable('marks')
        .addColumn('name', 'text', (c) => c.primaryKey())
        .addColumn('at', 'text', (c) => c.notNull())
        .execute();
    },
  },
  '0013-draft-roles': {
    async up(db: Kysely<unknown>): Promise<void> {
      await db.schema.alterTable('sessions').addColumn('draft_roles', 'text').execute();
    },
  },
};

/** What the archive names in the blob store, noted as later archiving does. */
async function referToArchivedBlobs(untyped: Kysely<unknown>): Promise<void> {
  const db = untyped.withTables<{
    archive: { turn_id: string; record: string };
    turns: { id: string; session_id: string };
    blob_references: { session_id: string; blob: string };
  }>();
  for (const { id, session_id } of await db.selectFrom('turns').select(['id', 'session_id']).execute()) {
    const rows = await db
      .selectFrom('archive')
      .select('record')
      .where('turn_id', '=', id)
      .where('record', 'like', '%blob":"%')
      .execute();
    for (const [, blob = ''] of rows.flatMap(({ record }) => [...record.matchAll(/"\$?blob":"([0-9a-f]{64})"/g)])) {
      await db
        .insertInto('blob_references')
        .values({ session_id, blob })
        .onConflict((conflict) => conflict.columns(['session_id', 'blob']).doNothing())
        .execute();
    }
  }
}
