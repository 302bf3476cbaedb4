import { sql, SqliteAdapter, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import { createInitialTables } from './initial-tables.ts';

/** Ends the name of a migration that the version before does not work with. */
export const BREAKING = '-breaking';

/** Creates the table in which the hash of each migration is stored. */
export const MIGRATION_HASHES = '0002-migration-hashes';

/**
 * In their order. None ever changes, and a test pins the hash of each: a change is a further migration. Each runs on
 * SQLite and on PostgreSQL. The version before works on its result, since processes of both run side by side during a
 * deploy; the name of one that cannot achieve this ends with `BREAKING`.
 */
export const migrations: Record<string, Migration> = {
  '0001-initial': {
    up: createInitialTables,
  },
  [MIGRATION_HASHES]: {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema
        .createTable('migration_hashes')
        .addColumn('name', 'text', (c) => c.primaryKey())
        .addColumn('hash', 'text', (c) => c.notNull())
        .execute();
    },
  },
  '0003-subject-roles': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema
        .createTable('subject_roles')
        .addColumn('subject_id', 'text', (c) => c.primaryKey())
        .addColumn('roles', 'text', (c) => c.notNull())
        .addColumn('issued_at', 'text', (c) => c.notNull())
        .execute();
    },
  },
  '0004-stored-bytes': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema
        .alterTable('sessions')
        .addColumn('stored_bytes', 'bigint', (c) => c.notNull().defaultTo(0))
        .execute();
      // Partial, so that SQLite uses it for no list of sessions.
      await schema
        .createIndex('sessions_storing')
        .on('sessions')
        .columns(['subject_id', 'stored_bytes'])
        .where(sql.ref('stored_bytes'), '>', 0)
        .execute();
      await schema
        .createTable('stored_blobs')
        .addColumn('session_id', 'text', (c) => c.notNull())
        .addColumn('blob', 'text', (c) => c.notNull())
        .addColumn('bytes', 'bigint', (c) => c.notNull())
        .addPrimaryKeyConstraint('stored_blobs_key', ['session_id', 'blob'])
        .execute();
    },
  },
  '0005-model-servers': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema
        .createTable('model_servers')
        .addColumn('provider', 'text', (c) => c.notNull())
        .addColumn('url_hash', 'text', (c) => c.notNull())
        .addColumn('answered_at', 'text', (c) => c.notNull())
        .addPrimaryKeyConstraint('model_servers_key', ['provider', 'url_hash'])
        .execute();
    },
  },
  '0006-small-indexes': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      // Partial, without the sessions of runs, of which there may be a thousand times as many: `sessions_by_time` and
      // `sessions_by_owner` have them all, and are removed a release later.
      for (const [name, columns] of [
        ['sessions_shown_by_time', ['created_at', 'id']],
        ['sessions_shown_by_owner', ['subject_id', 'created_at', 'id']],
      ] as const) {
        await schema
          .createIndex(name)
          .on('sessions')
          .columns([...columns])
          .where(sql.ref('type'), 'not in', ['run', 'run/delegate'])
          .execute();
      }
      // Without the claims that are kept as long as their sessions.
      await schema
        .createIndex('idempotency_by_age')
        .on('idempotency')
        .column('created_at')
        .where(sql.ref('created_at'), '<', '9999-12-31T23:59:59.999Z')
        .execute();
      await schema.createIndex('turns_by_id_in_session').on('turns').columns(['session_id', 'id']).execute();
    },
  },
  '0007-states': {
    async up(db: Kysely<unknown>): Promise<void> {
      const { schema } = db;
      // Without defaults: the version before leaves them null, and housekeeping derives them.
      for (const column of ['state', 'state_at', 'leaves']) {
        await schema.alterTable('turns').addColumn(column, 'text').execute();
      }
      await schema.alterTable('sessions').addColumn('state', 'text').execute();
      await schema
        .createTable('session_texts')
        .addColumn('session_id', 'text', (c) => c.primaryKey().references('sessions.id').onDelete('cascade'))
        .addColumn('first_message', 'text')
        .addColumn('last_answer', 'text')
        .execute();
      await schema
        .createTable('run_summaries')
        .addColumn('session_id', 'text', (c) => c.primaryKey().references('sessions.id').onDelete('cascade'))
        .addColumn('summary', 'text', (c) => c.notNull())
        .execute();
      const byState = [
        ['sessions_by_state', ['type', 'closed', 'state', 'created_at', 'id']],
        ['sessions_by_subject_and_state', ['type', 'subject_id', 'closed', 'state', 'created_at', 'id']],
      ] as const;
      for (const [name, columns] of byState) {
        await schema
          .createIndex(name)
          .on('sessions')
          .columns([...columns])
          .execute();
      }
      const closed = [
        ['sessions_closed', ['type', 'created_at', 'id']],
        ['sessions_closed_by_subject', ['type', 'subject_id', 'created_at', 'id']],
      ] as const;
      for (const [name, columns] of closed) {
        await schema
          .createIndex(name)
          .on('sessions')
          .columns([...columns])
          .where(sql.ref('closed'), '=', 1)
          .execute();
      }
      await schema
        .createIndex('sessions_underived')
        .on('sessions')
        .column('id')
        .where(sql.ref('state'), 'is', null)
        .execute();
      await sql`create index turns_underived on turns (id)
        where state is null or (archived = 1 and state <> 'ended')`.execute(db);
    },
  },
  '0008-stored-bytes-of-subjects': {
    async up(db: Kysely<unknown>): Promise<void> {
      const { schema } = db;
      await schema
        .createTable('subject_stored_bytes')
        .addColumn('subject_id', 'text', (c) => c.primaryKey())
        .addColumn('bytes', 'bigint', (c) => c.notNull())
        .execute();
      await schema
        .createIndex('subject_stored_bytes_by_bytes')
        .on('subject_stored_bytes')
        .columns(['bytes', 'subject_id'])
        .execute();
      await schema
        .createTable('stored_bytes_changes')
        .addColumn('subject_id', 'text', (c) => c.notNull())
        .addColumn('bytes', 'bigint', (c) => c.notNull())
        .execute();
      await schema
        .createIndex('stored_bytes_changes_by_subject')
        .on('stored_bytes_changes')
        .columns(['subject_id', 'bytes'])
        .execute();
      // Triggers, since the version before changes `stored_bytes` as well, and knows nothing of the sums.
      await createStoredBytesTriggers(db);
      // On PostgreSQL, their creation has locked the table against changes: what is summed now is what they add to.
      const of = (subject: string) => sql`insert into subject_stored_bytes (subject_id, bytes)
        select ${sql.raw(subject)} as subject, sum(stored_bytes) from sessions where stored_bytes > 0 group by subject`;
      await of('subject_id').execute(db);
      await of("''").execute(db);
      await schema.dropIndex('sessions_storing').execute();
    },
  },
  '0009-sandboxes': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema
        .createTable('sandboxes')
        .addColumn('session_id', 'text', (c) => c.primaryKey())
        .addColumn('id', 'text', (c) => c.notNull())
        .addColumn('host', 'text', (c) => c.notNull())
        .addColumn('isolation', 'text', (c) => c.notNull())
        .addColumn('opened_by', 'text', (c) => c.notNull())
        .addColumn('workspace', 'text')
        .addColumn('created_at', 'text', (c) => c.notNull())
        .execute();
      await schema.createIndex('sandboxes_by_host').on('sandboxes').columns(['host', 'session_id']).execute();
      await schema
        .createTable('kernel_hosts')
        .addColumn('host', 'text', (c) => c.primaryKey())
        .addColumn('state', 'text', (c) => c.notNull())
        .addColumn('reason', 'text')
        .addColumn('kernels', 'integer', (c) => c.notNull())
        .addColumn('capacity', 'integer', (c) => c.notNull())
        .addColumn('seen_at', 'text', (c) => c.notNull())
        .execute();
      await schema.createIndex('kernel_hosts_by_time').on('kernel_hosts').columns(['seen_at', 'host']).execute();
    },
  },
  '0010-permission-rules': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema
        .createTable('permission_rules')
        .addColumn('id', 'text', (c) => c.primaryKey())
        .addColumn('scope', 'text', (c) => c.notNull())
        .addColumn('place', 'text', (c) => c.notNull())
        .addColumn('session_id', 'text')
        .addColumn('agent_name', 'text')
        .addColumn('hash', 'text', (c) => c.notNull())
        .addColumn('rule', 'text', (c) => c.notNull())
        .addColumn('created_at', 'text', (c) => c.notNull())
        .addColumn('expires_at', 'text')
        .execute();
      await schema
        .createIndex('permission_rules_by_place')
        .on('permission_rules')
        .columns(['place', 'hash'])
        .unique()
        .execute();
      await schema
        .createIndex('permission_rules_of_session')
        .on('permission_rules')
        .column('session_id')
        .where(sql.ref('session_id'), 'is not', null)
        .execute();
    },
  },
  '0011-sandbox-state': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema
        .alterTable('sandboxes')
        .addColumn('calls', 'integer', (c) => c.notNull().defaultTo(0))
        .execute();
      await schema.alterTable('sandboxes').addColumn('kernels', 'text').execute();
      await schema.createIndex('sandboxes_by_id').unique().on('sandboxes').column('id').execute();
    },
  },
  '0012-kernel-resets': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema.alterTable('sandboxes').addColumn('resets', 'text').execute();
      await schema.alterTable('sandboxes').addColumn('reset_ids', 'text').execute();
      await schema
        .createIndex('sandboxes_with_resets')
        .on('sandboxes')
        .column('host')
        .where(sql.ref('resets'), 'is not', null)
        .execute();
    },
  },
  '0013-saved-code-tools': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema
        .createTable('saved_code_tools')
        .addColumn('id', 'text', (c) => c.primaryKey())
        .addColumn('place', 'text', (c) => c.notNull())
        .addColumn('agent_name', 'text', (c) => c.notNull())
        .addColumn('category', 'text', (c) => c.notNull())
        .addColumn('name', 'text', (c) => c.notNull())
        .addColumn('version', 'integer', (c) => c.notNull())
        .addColumn('hash', 'text', (c) => c.notNull())
        .addColumn('about', 'text', (c) => c.notNull())
        .addColumn('code', 'text', (c) => c.notNull())
        .addColumn('saved_by', 'text', (c) => c.notNull())
        .addColumn('created_at', 'text', (c) => c.notNull())
        .addColumn('updated_at', 'text', (c) => c.notNull())
        .execute();
      await schema
        .createIndex('saved_code_tools_by_place')
        .on('saved_code_tools')
        .columns(['place', 'category', 'name'])
        .unique()
        .execute();
    },
  },
  '0014-kernel-snapshots': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema.alterTable('sandboxes').addColumn('snapshots', 'text').execute();
      await schema
        .createTable('held_blobs')
        .addColumn('session_id', 'text', (c) => c.notNull())
        .addColumn('holder', 'text', (c) => c.notNull())
        .addColumn('blob', 'text', (c) => c.notNull())
        .addPrimaryKeyConstraint('held_blobs_key', ['session_id', 'holder', 'blob'])
        .execute();
    },
  },
  '0015-isolation-of-hosts': {
    async up({ schema }: Kysely<unknown>): Promise<void> {
      await schema.alterTable('kernel_hosts').addColumn('isolation', 'text').execute();
    },
  },
};

/** Triggers that insert each change of `sessions.stored_bytes` into `stored_bytes_changes`. */
async function createStoredBytesTriggers(db: Kysely<unknown>): Promise<void> {
  const isSqlite = db.getExecutor().adapter instanceof SqliteAdapter;
  const triggers = [
    { on: 'insert', when: 'new.stored_bytes <> 0', row: 'new', bytes: 'new.stored_bytes' },
    { on: 'delete', when: 'old.stored_bytes <> 0', row: 'old', bytes: '-old.stored_bytes' },
    {
      on: 'update of stored_bytes',
      when: 'new.stored_bytes <> old.stored_bytes',
      row: 'new',
      bytes: 'new.stored_bytes - old.stored_bytes',
    },
  ];
  for (const { on, when, row, bytes } of triggers) {
    const name = `stored_bytes_after_${on.slice(0, 6)}`;
    const insert = `insert into stored_bytes_changes (subject_id, bytes) values (${row}.subject_id, ${bytes});`;
    const head = `create trigger ${name} after ${on} on sessions for each row when (${when})`;
    if (isSqlite) await sql.raw(`${head} begin ${insert} end`).execute(db);
    else {
      const add = `create function ${name}() returns trigger language plpgsql as $$ begin ${insert} return null; end $$`;
      await sql.raw(add).execute(db);
      await sql.raw(`${head} execute function ${name}()`).execute(db);
    }
  }
}
