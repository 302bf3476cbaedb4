import { Kysely, sql } from 'kysely';
import { pino } from 'pino';
import { dialectOf, type Database } from '../../src/catalog/database.ts';
import { prepareDatabase } from '../../src/catalog/migrate.ts';
import { PgDialect } from '../../src/catalog/postgres.ts';
import { FOREVER } from '../../src/catalog/session-states.ts';
import type { Tables } from '../../src/catalog/schema.ts';

/** The present of a filled catalog. Its history is that of the 90 days before. */
export const NOW = new Date('2026-11-22T08:00:00.000Z');

/** The subject of every second session. */
export const BUSY = 'user-busy';

/** A session with 2,000 turns. */
export const LONG_SESSION = idOf('ses', 999_999_999);

const DAY_S = 86_400;
const HISTORY_S = 90 * DAY_S;

/** Sessions of the Sessions API and of the Agents API v2 beside the runs: more than a list of the latter looks at. */
const SHOWN = 24_000;

type Kind = Database['kind'];

/** The number of each kind of open work: requested, running, due, queued or not yet delivered. */
const OPEN = 40;

/** The id of the `i`-th row of a table. They sort as their numbers do. */
export function idOf(prefix: string, i: number): string {
  return `${prefix}_0000000000000000${1_000_000_000 + i}`;
}

/** Settings of the connection that fills a catalog: what it writes need not survive a crash, and is consistent. */
const FAST: Record<Kind, string[]> = {
  sqlite: [
    'pragma foreign_keys = off',
    'pragma synchronous = off',
    'pragma temp_store = memory',
    'pragma cache_size = -1000000',
  ],
  postgres: ['set session_replication_role = replica', "set maintenance_work_mem = '512MB'"],
};

/**
 * Makes a catalog in an empty database, and fills it with the history of so many runs and of a tenth as many other
 * sessions, by statements of SQL that insert many rows. Only history depends on the number: what is open, due or configured
 * is the same in each catalog.
 */
export async function fillCatalog(database: Database, { runs }: { runs: number }): Promise<void> {
  const log = pino({ level: 'silent' });
  await prepareDatabase(database, log);
  const { kind } = database;
  const shown = SHOWN + Math.floor(runs / 10);
  const statements = [
    ...configured(kind),
    ...sessions(kind, { runs, shown }),
    ...turns(kind, { runs, shown }),
    ...actions(kind, { shown }),
    ...requests(kind, { runs, shown }),
    ...deliveries(kind, { runs }),
    ...storedBytes(),
  ];
  const dialect =
    kind === 'sqlite'
      ? dialectOf(database, log)
      : new PgDialect({ url: database.url, connections: 1, statementMs: 0 }, log);
  const db = new Kysely<Tables>({ dialect });
  try {
    for (const setting of FAST[kind]) await sql.raw(setting).execute(db);
    const rebuild = await dropIndexes(db, kind);
    for (const statement of [...statements, ...rebuild]) await sql.raw(statement).execute(db);
    // SQLite keeps no statistics: the server never collects any, and plans without them.
    if (kind === 'postgres') await sql`vacuum analyze`.execute(db);
  } finally {
    await db.destroy();
  }
}

/** Drops the indexes that are no constraints, and returns the statements that create them: it is faster to build them at once. */
async function dropIndexes(db: Kysely<Tables>, kind: Kind): Promise<string[]> {
  const { rows } =
    kind === 'sqlite'
      ? await sql<Index>`select name, sql from sqlite_master where type = 'index' and sql is not null`.execute(db)
      : await sql<Index>`
          select indexname as name, indexdef as sql from pg_indexes
            where schemaname = current_schema() and indexname not in (select conname from pg_constraint)
              and tablename not like 'kysely%'`.execute(db);
  for (const { name } of rows) await sql`drop index ${sql.ref(name)}`.execute(db);
  return rows.map((row) => row.sql);
}

interface Index {
  name: string;
  sql: string;
}

type Columns = Record<string, string>;

/** Inserts `count` rows: the expressions of their columns may use `i`, from 0, which is a 64-bit integer. */
function insert(table: keyof Tables, count: number, columns: Columns): string {
  return `
    with recursive n(i) as (
      select cast(0 as bigint) where ${count} > 0 union all select i + 1 from n where i + 1 < ${count}
    )
    insert into ${table} (${Object.keys(columns).join()}) select ${Object.values(columns).join()} from n`;
}

/** The expression of the id of a row. */
function id(prefix: string, i: string | number): string {
  return `'${prefix}_0000000000000000' || cast(1000000000 + (${i}) as text)`;
}

/** The expression of the time so many seconds ago. */
function ago(kind: Kind, seconds: string | number): string {
  const at = `${NOW.getTime() / 1000} - (${seconds})`;
  return kind === 'sqlite'
    ? `strftime('%Y-%m-%dT%H:%M:%fZ', ${at}, 'unixepoch')`
    : `to_char(to_timestamp(${at}) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
}

/** The expression of the age of the `i`-th of `count` rows, in seconds: the last one is the newest. */
function age(count: number, i = 'i'): string {
  return `(${count} - (${i})) * ${HISTORY_S / count}`;
}

/** An expression that takes each value in so many of 100 rows, whatever other expressions take in the same row. */
function share(factor: number, values: [percent: number, value: string][]): string {
  let below = 0;
  const cases = values.map(([percent, value]) => `when (i * ${factor}) % 100 < ${(below += percent)} then ${value}`);
  return `case ${cases.join(' ')} end`;
}

/** The expression of the subject of a row: every second time `BUSY`, else one of as many as there are 20 rows for. */
function subject(count: number, i = 'i'): string {
  return `case when ${i} % 2 = 0 then '${BUSY}' else 'user-' || cast(${i} * 31 % ${Math.floor(count / 20)} as text) end`;
}

const STATES = share(7, [
  [90, "'completed'"],
  [4, "'error'"],
  [3, "'cancelled'"],
  [2, "'unanswered'"],
  [1, "'timed_out'"],
]);

const AGENT = "'agent-' || cast(i % 100 as text)";
const SPECS = 500;

function configured(kind: Kind): string[] {
  const at = ago(kind, HISTORY_S);
  const times = { created_at: at, updated_at: at };
  const spec = `'{"model":{"name":"openai/gpt-5"},"instruction":"You help."}'`;
  return [
    insert('specs', SPECS, {
      hash: id('spec', 'i'),
      spec,
      retention_days: 'case when i % 10 = 0 then 365 when i % 10 = 1 then 120 end',
    }),
    insert('specs', OPEN, { hash: id('unused', 'i'), spec, unused_since: at }),
    insert('agents', 100, { name: AGENT, version: '3', spec_hash: id('spec', 'i'), ...times }),
    insert('agent_versions', 300, {
      agent_name: AGENT,
      version: '1 + i / 100',
      spec_hash: id('spec', 'i'),
      created_at: at,
    }),
    insert('agent_definitions', 300, {
      agent_name: AGENT,
      version: '1 + i / 100',
      definition: `'{"name":"agent"}'`,
      description: "'It helps.'",
      created_by: "'ann'",
    }),
    insert('agent_parts', 50, {
      type: "case when i % 2 = 0 then 'skill' else 'environment' end",
      name: "'part-' || cast(i as text)",
      description: "'It helps.'",
      definition: "'{}'",
      ...times,
    }),
    insert('permission_rules', 20_000, {
      id: id('rule', 'i'),
      scope: "case when i % 2 = 0 then 'always' else 'session' end",
      place: id('place', 'i / 10'),
      session_id: `case when i % 2 = 1 then ${id('ses', 'i / 10')} end`,
      agent_name: `case when i % 2 = 0 then ${AGENT} end`,
      hash: id('hash', 'i'),
      rule: "'{}'",
      created_at: at,
    }),
    insert('saved_code_tools', 20_000, {
      id: id('tool', 'i'),
      place: id('place', 'i / 100'),
      agent_name: AGENT,
      category: "'reports'",
      name: "'tool_' || cast(i as text)",
      version: '1',
      hash: id('hash', 'i'),
      about: "'{}'",
      code: "'{}'",
      saved_by: "'[]'",
      ...times,
    }),
    insert('schedules', 200, {
      id: id('sch', 'i'),
      name: "'daily'",
      request: "'{}'",
      cron: "'0 0 * * *'",
      timezone: "'UTC'",
      subject_id: subject(200),
      subject_type: "'user'",
      subject_slug: subject(200),
      roles: "'[]'",
      synced_revision: '1',
      checked_at: ago(kind, 60),
      ...times,
    }),
    insert('schedule_runs', 20_000, {
      id: id('srn', 'i'),
      schedule_id: id('sch', 'i % 200'),
      status: "'created'",
      scheduled_for: ago(kind, age(20_000)),
      triggered_manually: '0',
      created_at: ago(kind, age(20_000)),
    }),
    insert('api_keys', 20, {
      id: id('key', 'i'),
      hash: id('hash', 'i'),
      name: "'ann'",
      role: "'user'",
      created_at: at,
    }),
    insert('webhooks', 4, {
      id: id('whk', 'i'),
      face: "case when i % 2 = 0 then 'sessions' else 'agents-v2' end",
      url: "'https://example.org'",
      events: `'["turn.done"]'`,
      secret: "'secret'",
      ...times,
    }),
    insert('mcp_grants', 2_000, {
      id: id('mcg', 'i'),
      subject_id: "'user-' || cast(i % 1000 as text)",
      server: "'server-' || cast(i / 1000 as text)",
      data: "'{}'",
      tokens: "'{}'",
      version: '1',
      created_at: at,
    }),
  ];
}

function sessions(kind: Kind, { runs, shown }: { runs: number; shown: number }): string[] {
  const of = (count: number, columns: Columns): Columns => {
    const at = ago(kind, age(count));
    // Each 500th was deleted, and its removal is repeated once more: that of the newest ones is due.
    const isDeleted = 'i % 500 = 499';
    return {
      spec_hash: id('spec', `i % ${SPECS}`),
      subject_id: subject(count),
      subject_type: "'user'",
      subject_slug: subject(count),
      created_at: at,
      updated_at: at,
      active_at: at,
      ended_at: at,
      state: `case when i < ${count - OPEN} then ${STATES} else 'running' end`,
      closed: 'case when i % 50 = 7 then 1 else 0 end',
      stored_bytes: `case when ${isDeleted} then 0 else 2000 + i % 1000 end`,
      deleted_at: `case when ${isDeleted} then ${at} end`,
      removal_at: `case when ${isDeleted} then case when i < ${500 * OPEN} then ${ago(kind, 60)} else ${ago(kind, -DAY_S)} end end`,
      // Blobs are collected a day after a turn.
      unswept_since: `case when ${age(count)} < ${DAY_S} then ${at} when i < ${OPEN} then ${ago(kind, 2 * DAY_S)} end`,
      ...columns,
    };
  };
  const named = { agent_name: AGENT, agent_version: '1 + i / 100 % 3' };
  const delegates = Math.floor(runs / 100);
  return [
    insert('sessions', runs, of(runs, { id: id('run', 'i'), type: "'run'", ...named })),
    insert(
      'sessions',
      delegates,
      of(delegates, { id: id('dlg', 'i'), type: "'run/delegate'", ...named, spec_hash: id('spec', 'i % 100') }),
    ),
    // Each fifth belongs to the Agents API v2, each tenth is a draft.
    insert(
      'sessions',
      shown,
      of(shown, {
        id: id('ses', 'i'),
        type: "case when i % 10 = 1 then 'session/draft' else 'session' end",
        agent_name: `case when i % 10 <> 1 then ${AGENT} end`,
        agent_version: 'case when i % 10 <> 1 then 1 + i / 100 % 3 end',
      }),
    ),
    insert('sessions', 1, of(1, { id: `'${LONG_SESSION}'`, type: "'session'", ...named })),
    insert('delegations', delegates, {
      child_session_id: id('dlg', 'i'),
      child_turn_id: id('turn_dlg', 'i'),
      parent_session_id: id('run', 'i'),
      parent_turn_id: id('turn_run', 'i'),
      thread_id: "'main'",
      tool_call_id: "'call'",
      agent: "'agent-1'",
      depth: '1',
      created_at: ago(kind, age(delegates)),
      told: '1',
    }),
    ...['blob_references' as const, 'held_blobs' as const, 'stored_blobs' as const].map((table) =>
      insert(table, Math.floor(runs / 20), {
        session_id: id('run', 'i * 20'),
        blob: id('blob', 'i'),
        ...(table === 'held_blobs' && { holder: "'kernel main'" }),
        ...(table === 'stored_blobs' && { bytes: '1000' }),
      }),
    ),
    insert('shared_sessions', Math.floor(shown / 100), { session_id: id('ses', 'i * 100'), shared_at: ago(kind, 0) }),
    insert('session_feedback', Math.floor(shown / 100), {
      session_id: id('ses', 'i * 100'),
      place: '-1',
      success: '1',
      given_at: ago(kind, 0),
    }),
    insert('spending', 1_000, {
      key: "'subject/day/user-' || cast(i as text)",
      period: "'2026-11-22'",
      tokens: '1000',
      usd: '1',
      steps: '10',
      worked_ms: '1000',
      raised: "'{}'",
    }),
  ];
}

function turns(kind: Kind, { runs, shown }: { runs: number; shown: number }): string[] {
  /** The newest ones run, the rest is in the archive. */
  const of = (count: number, columns: Columns): Columns => ({
    sequence: '1',
    created_at: ago(kind, age(count)),
    archived: `case when i < ${count - OPEN} then 1 else 0 end`,
    archived_through: '2',
    state: `case when i < ${count - OPEN} then 'ended' else 'running' end`,
    state_at: ago(kind, age(count)),
    events_before: '0',
    ...columns,
  });
  const delegates = Math.floor(runs / 100);
  const record = `'{"kind":"message","at":"2026-11-01T08:00:00.000Z","text":"' || cast(i as text) || '"}'`;
  return [
    insert('turns', runs, of(runs, { id: id('turn_run', 'i'), session_id: id('run', 'i') })),
    insert(
      'turns',
      delegates,
      of(delegates, { id: id('turn_dlg', 'i'), session_id: id('dlg', 'i'), archived: '1', state: "'ended'" }),
    ),
    insert(
      'turns',
      shown,
      of(shown, { id: id('turn_a', 'i'), session_id: id('ses', 'i'), archived: '1', state: "'ended'" }),
    ),
    insert(
      'turns',
      shown,
      of(shown, {
        id: id('turn_b', 'i'),
        session_id: id('ses', 'i'),
        previous_turn_id: id('turn_a', 'i'),
        sequence: '2',
        events_before: '10',
      }),
    ),
    // They wait in the queue of their sessions.
    insert('turns', OPEN, {
      id: id('turn_q', 'i'),
      session_id: id('ses', 'i'),
      state: "'queued'",
      queue_number: '1',
      created_at: ago(kind, 600),
    }),
    // Their requests were not answered yet, or never will be.
    insert('turns', OPEN, {
      state: "'requested'",
      id: id('turn_r', 'i'),
      session_id: id('ses', 'i'),
      created_at: ago(kind, 'i * 3'),
    }),
    insert('turns', 2_000, {
      ...of(2_000, {}),
      id: id('turn_l', 'i'),
      session_id: `'${LONG_SESSION}'`,
      previous_turn_id: `case when i > 0 then ${id('turn_l', 'i - 1')} end`,
      sequence: '1 + i',
      events_before: 'i * 10',
      archived: '1',
      state: "'ended'",
    }),
    // Two records of each tenth run and of each first turn of another session.
    insert('archive', Math.floor(runs / 10) * 2, {
      turn_id: id('turn_run', 'i / 2 * 10'),
      ordinal: '1 + i % 2',
      record,
    }),
    insert('archive', shown * 2, { turn_id: id('turn_a', 'i / 2'), ordinal: '1 + i % 2', record }),
  ];
}

function actions(kind: Kind, { shown }: { shown: number }): string[] {
  const count = shown * 2;
  const at = ago(kind, age(count));
  const isPending = `i >= ${count - 300}`;
  const agent = "'agent-' || cast(i / 2 % 100 as text)";
  const owner = subject(shown, 'i / 2');
  const status = `case when ${isPending} then 'pending' else ${share(13, [
    [80, "'decided'"],
    [18, "'superseded'"],
    [2, "'expired'"],
  ])} end`;
  const audience = (group: string): string =>
    insert('action_audience', count, {
      action_id: id('act', 'i'),
      audience: group,
      settled: `case when ${isPending} then 0 else 1 end`,
      agent_name: agent,
      requested_at: at,
    });
  return [
    insert('actions', count, {
      id: id('act', 'i'),
      session_id: id('ses', 'i / 2'),
      turn_id: id('turn_b', 'i / 2'),
      key: "'call-' || cast(i as text)",
      thread_id: "'main'",
      tool_call_id: "'call'",
      kind: "'approval'",
      status,
      agent_name: agent,
      requested_at: at,
      escalated_to: "'[]'",
      detail: `'{"tool":{"server":"shop","name":"buy"}}'`,
      decisions: "'[]'",
    }),
    audience(`'decide:' || ${owner}`),
    audience("'role:approver'"),
    insert('action_events', count * 2, {
      sequence: '1 + i',
      action_id: id('act', 'i / 2'),
      type: "case when i % 2 = 0 then 'action.created' else 'action.decided' end",
      status: "case when i % 2 = 0 then 'pending' else 'decided' end",
      decisions: 'i % 2',
    }),
    insert('counters', 1, { name: "'events'", value: String(count * 2) }),
    insert('kept_answers', OPEN, {
      turn_id: id('turn_b', `${shown - OPEN} + i`),
      thread_id: "'main'",
      tool_call_id: "'call'",
      session_id: id('ses', `${shown - OPEN} + i`),
      answer: "'{}'",
    }),
  ];
}

/** Requests of the Agents API v2, idempotency keys, sign-ins and secrets. */
function requests(kind: Kind, { runs, shown }: { runs: number; shown: number }): string[] {
  const count = Math.floor(shown / 5);
  const at = ago(kind, age(count));
  const isNewest = (from: number): string => `i >= ${count - (from + 1) * OPEN} and i < ${count - from * OPEN}`;
  const recent = Math.floor(runs / 50);
  return [
    insert('session_requests', count, {
      session_id: id('ses', 'i * 5'),
      request: "'{}'",
      agent: "'agent-' || cast(i * 5 % 100 as text)",
      agent_revision: '1',
      group_id: "'group-' || cast(i / 20 as text)",
      parent_session_id: `case when i < 100 then '${LONG_SESSION}' end`,
      first_message: "'Hello'",
      schedule_id: `case when i < 4000 then ${id('sch', 'i % 200')} end`,
      idle_timeout_s: '3600',
      delete_after_min: 'case when i % 20 = 0 then 1000000 end',
      roles: "'[]'",
      queue_number: `case when ${isNewest(0)} then 1 + i end`,
      first_turn_id: `case when ${isNewest(1)} then ${id('turn_f', 'i')} end`,
      waits_until: `case when ${isNewest(2)} then '${FOREVER}' when i < ${count - 5 * OPEN} then ${at} end`,
      idle_ends_at: `case when ${isNewest(3)} then ${ago(kind, 60)} end`,
      delete_at: `case when ${isNewest(4)} then ${ago(kind, 60)} when i % 20 = 0 then ${ago(kind, -DAY_S)} end`,
      cancelled_at: `case when i % 30 = 0 then ${at} end`,
    }),
    insert('session_inputs', OPEN, { session_id: id('ses', 'i * 5'), number: '1', input: "'[]'" }),
    insert('run_secrets', OPEN, { session_id: id('run', `${runs - OPEN} + i`), secrets: "'{}'" }),
    // Those of runs are kept as long as these.
    insert('idempotency', runs, {
      scope: `${subject(runs)} || '/runs'`,
      key: id('key', 'i'),
      resource_id: id('run', 'i'),
      body_hash: id('hash', 'i'),
      session_id: id('run', 'i'),
      created_at: `'${FOREVER}'`,
    }),
    insert('idempotency', recent, {
      scope: `${subject(runs)} || '/turns'`,
      key: id('key', 'i'),
      resource_id: id('turn', 'i'),
      body_hash: id('hash', 'i'),
      session_id: id('ses', 'i'),
      created_at: ago(kind, `i * ${DAY_S / recent}`),
    }),
    insert('idempotency', OPEN, {
      scope: "'due'",
      key: id('key', 'i'),
      resource_id: id('turn', 'i'),
      body_hash: id('hash', 'i'),
      session_id: "''",
      created_at: ago(kind, 2 * DAY_S),
    }),
    insert('mcp_sign_ins', 1_000, {
      id: id('sgn', 'i'),
      turn_id: id('turn_run', 'i'),
      subject_id: "'user-' || cast(i as text)",
      server: "'server-3'",
      status: `case when i < ${OPEN} then 'requested' else 'granted' end`,
      data: "'{}'",
      told: `case when i < ${OPEN} then 0 else 1 end`,
      created_at: ago(kind, 'i * 60'),
      expires_at: ago(kind, 'i * 60 - 3600'),
    }),
  ];
}

/** What housekeeping has made of the triggers' rows, which PostgreSQL does not insert here. */
function storedBytes(): string[] {
  const sums = (subject: string) =>
    `insert into subject_stored_bytes (subject_id, bytes)
       select ${subject} as subject, sum(stored_bytes) from sessions where stored_bytes > 0 group by subject`;
  return ['delete from stored_bytes_changes', sums('subject_id'), sums("''")];
}

function deliveries(kind: Kind, { runs }: { runs: number }): string[] {
  const sent = Math.floor(runs / 20);
  const keptS = 3 * DAY_S;
  const of = (columns: Columns): Columns => ({
    webhook_id: id('whk', 'i % 4'),
    type: "'turn.done'",
    turn_id: "'turn'",
    ...columns,
  });
  return [
    insert('deliveries', sent, {
      ...of({ id: id('dlv', 'i'), sequence: '1 + i', session_id: id('run', 'i') }),
      created_at: ago(kind, `(${sent} - i) * ${keptS / sent}`),
      status: "case when i % 100 = 0 then 'failed' else 'delivered' end",
    }),
    insert('deliveries', OPEN, {
      ...of({ id: id('old', 'i'), sequence: '0', session_id: id('run', 'i'), status: "'delivered'" }),
      created_at: ago(kind, 4 * DAY_S),
    }),
    insert('deliveries', OPEN, {
      ...of({ id: id('new', 'i'), sequence: `${sent + 1} + i`, session_id: id('run', `${runs - OPEN} + i`) }),
      created_at: ago(kind, 60),
    }),
    insert('delivery_lanes', OPEN, {
      webhook_id: id('whk', 'i % 4'),
      session_id: id('run', `${runs - OPEN} + i`),
      last_sequence: `${sent + 1} + i`,
      due_at: ago(kind, 60),
    }),
  ];
}
