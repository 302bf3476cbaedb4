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
};
