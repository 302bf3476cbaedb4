import { sql, SqliteAdapter, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import { addColumns, createIndexes, createTables } from './create-tables.ts';
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
    up: (db) => createTables(db, { migration_hashes: 'name text primary key, hash text not null' }),
  },
  '0003-subject-roles': {
    up: (db) =>
      createTables(db, { subject_roles: 'subject_id text primary key, roles text not null, issued_at text not null' }),
  },
  '0004-stored-bytes': {
    async up(db: Kysely<unknown>): Promise<void> {
      await addColumns(db, 'sessions', 'stored_bytes bigint default 0 not null');
      // Partial, so that SQLite uses it for no list of sessions.
      const storing = { where: '"stored_bytes" > 0' };
      await createIndexes(db, [['sessions_storing', 'sessions', ['subject_id', 'stored_bytes'], storing]]);
      await createTables(db, {
        stored_blobs: `
          session_id text not null, blob text not null, bytes bigint not null,
          constraint stored_blobs_key primary key (session_id, blob)`,
      });
    },
  },
  '0005-model-servers': {
    up: (db) =>
      createTables(db, {
        model_servers: `
          provider text not null, url_hash text not null, answered_at text not null,
          constraint model_servers_key primary key (provider, url_hash)`,
      }),
  },
  '0006-small-indexes': {
    async up(db: Kysely<unknown>): Promise<void> {
      // Partial, without the sessions of runs, of which there may be a thousand times as many: `sessions_by_time` and
      // `sessions_by_owner` have them all, and are removed a release later.
      const shown = { where: `"type" not in ('run', 'run/delegate')` };
      await createIndexes(db, [
        ['sessions_shown_by_time', 'sessions', ['created_at', 'id'], shown],
        ['sessions_shown_by_owner', 'sessions', ['subject_id', 'created_at', 'id'], shown],
        // Without the claims that are kept as long as their sessions.
        ['idempotency_by_age', 'idempotency', ['created_at'], { where: `"created_at" < '9999-12-31T23:59:59.999Z'` }],
        ['turns_by_id_in_session', 'turns', ['session_id', 'id']],
      ]);
    },
  },
  '0007-states': {
    async up(db: Kysely<unknown>): Promise<void> {
      // Without defaults: the version before leaves them null, and housekeeping derives them.
      await addColumns(db, 'turns', 'state text, state_at text, leaves text');
      await addColumns(db, 'sessions', 'state text');
      await createTables(db, {
        session_texts: `
          session_id text primary key references "sessions" ("id") on delete cascade,
          first_message text, last_answer text`,
        run_summaries: `
          session_id text primary key references "sessions" ("id") on delete cascade, summary text not null`,
      });
      const closed = { where: '"closed" = 1' };
      await createIndexes(db, [
        ['sessions_by_state', 'sessions', ['type', 'closed', 'state', 'created_at', 'id']],
        ['sessions_by_subject_and_state', 'sessions', ['type', 'subject_id', 'closed', 'state', 'created_at', 'id']],
        ['sessions_closed', 'sessions', ['type', 'created_at', 'id'], closed],
        ['sessions_closed_by_subject', 'sessions', ['type', 'subject_id', 'created_at', 'id'], closed],
        ['sessions_underived', 'sessions', ['id'], { where: '"state" is null' }],
      ]);
      await sql`create index turns_underived on turns (id)
        where state is null or (archived = 1 and state <> 'ended')`.execute(db);
    },
  },
  '0008-stored-bytes-of-subjects': {
    async up(db: Kysely<unknown>): Promise<void> {
      await createTables(db, { subject_stored_bytes: 'subject_id text primary key, bytes bigint not null' });
      await createIndexes(db, [['subject_stored_bytes_by_bytes', 'subject_stored_bytes', ['bytes', 'subject_id']]]);
      await createTables(db, { stored_bytes_changes: 'subject_id text not null, bytes bigint not null' });
      await createIndexes(db, [['stored_bytes_changes_by_subject', 'stored_bytes_changes', ['subject_id', 'bytes']]]);
      // Triggers, since the version before changes `stored_bytes` as well, but not the sums.
      await createStoredBytesTriggers(db);
      // On PostgreSQL, their creation has locked the table against changes: what is summed now is what they add to.
      const of = (subject: string) => sql`insert into subject_stored_bytes (subject_id, bytes)
        select ${sql.raw(subject)} as subject, sum(stored_bytes) from sessions where stored_bytes > 0 group by subject`;
      await of('subject_id').execute(db);
      await of("''").execute(db);
      await db.schema.dropIndex('sessions_storing').execute();
    },
  },
  '0009-sandboxes': {
    async up(db: Kysely<unknown>): Promise<void> {
      await createTables(db, {
        sandboxes: `
          session_id text primary key, id text not null, host text not null, isolation text not null,
          opened_by text not null, workspace text, created_at text not null`,
      });
      await createIndexes(db, [['sandboxes_by_host', 'sandboxes', ['host', 'session_id']]]);
      await createTables(db, {
        kernel_hosts: `
          host text primary key, state text not null, reason text, kernels integer not null,
          capacity integer not null, seen_at text not null`,
      });
      await createIndexes(db, [['kernel_hosts_by_time', 'kernel_hosts', ['seen_at', 'host']]]);
    },
  },
  '0010-permission-rules': {
    async up(db: Kysely<unknown>): Promise<void> {
      await createTables(db, {
        permission_rules: `
          id text primary key, scope text not null, place text not null, session_id text, agent_name text,
          hash text not null, rule text not null, created_at text not null, expires_at text`,
      });
      const ofSession = { where: '"session_id" is not null' };
      await createIndexes(db, [
        ['permission_rules_by_place', 'permission_rules', ['place', 'hash'], { isUnique: true }],
        ['permission_rules_of_session', 'permission_rules', ['session_id'], ofSession],
      ]);
    },
  },
  '0011-sandbox-state': {
    async up(db: Kysely<unknown>): Promise<void> {
      await addColumns(db, 'sandboxes', 'calls integer default 0 not null, kernels text');
      await createIndexes(db, [['sandboxes_by_id', 'sandboxes', ['id'], { isUnique: true }]]);
    },
  },
  '0012-kernel-resets': {
    async up(db: Kysely<unknown>): Promise<void> {
      await addColumns(db, 'sandboxes', 'resets text, reset_ids text');
      await createIndexes(db, [['sandboxes_with_resets', 'sandboxes', ['host'], { where: '"resets" is not null' }]]);
    },
  },
  '0013-saved-code-tools': {
    async up(db: Kysely<unknown>): Promise<void> {
      await createTables(db, {
        saved_code_tools: `
          id text primary key, place text not null, agent_name text not null, category text not null,
          name text not null, version integer not null, hash text not null, about text not null, code text not null,
          saved_by text not null, created_at text not null, updated_at text not null`,
      });
      const columns = ['place', 'category', 'name'];
      await createIndexes(db, [['saved_code_tools_by_place', 'saved_code_tools', columns, { isUnique: true }]]);
    },
  },
  '0014-kernel-snapshots': {
    async up(db: Kysely<unknown>): Promise<void> {
      await addColumns(db, 'sandboxes', 'snapshots text');
      await createTables(db, {
        held_blobs: `
          session_id text not null, holder text not null, blob text not null,
          constraint held_blobs_key primary key (session_id, holder, blob)`,
      });
    },
  },
  '0015-isolation-of-hosts': {
    up: (db) => addColumns(db, 'kernel_hosts', 'isolation text'),
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
