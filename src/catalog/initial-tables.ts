import type { Kysely } from 'kysely';
import { createIndexes, createTables, type Index } from './create-tables.ts';

/** The first migration, which never changes: see `migrations.ts`. */
export async function createInitialTables(db: Kysely<unknown>): Promise<void> {
  await createTables(db, TABLES);
  await createIndexes(db, INDEXES);
}

/** The columns are described in `schema.ts`. */
const TABLES = {
  specs: 'hash text primary key, spec text not null, retention_days integer, unused_since text',
  agents: `
    name text primary key, version integer not null, spec_hash text not null references "specs" ("hash"),
    created_at text not null, updated_at text not null`,
  agent_versions: `
    agent_name text not null, version integer not null, spec_hash text not null references "specs" ("hash"),
    created_at text not null,
    constraint agent_versions_key primary key (agent_name, version)`,
  sessions: `
    id text primary key, type text not null, agent_name text, agent_version integer,
    spec_hash text not null references "specs" ("hash"), draft_roles text, title text,
    subject_id text not null, subject_type text not null, subject_slug text not null, metadata text,
    closed integer default 0 not null, created_at text not null, updated_at text not null,
    active_at text not null, unswept_since text, cost_in_usd double precision default 0,
    input_tokens bigint default 0 not null, output_tokens bigint default 0 not null,
    model_calls bigint default 0 not null, tool_calls bigint default 0 not null,
    waited_ms bigint default 0 not null, last_turn_at text, last_end text, ended_at text, deleted_at text,
    removal_at text`,
  turns: `
    id text primary key, session_id text not null, previous_turn_id text, sequence integer,
    queue_number integer, created_at text not null, archived_through integer default 0 not null,
    archived integer default 0 not null, events_before integer, indexed_through integer default 0 not null,
    answers text, may_pause integer default 0 not null, paused integer default 0 not null,
    paused_changed_at text, counted_ms bigint default 0 not null, told_through integer default 0 not null`,
  archive: `
    turn_id text not null, ordinal integer not null, record text not null,
    constraint archive_key primary key (turn_id, ordinal)`,
  blob_references: `
    session_id text not null, blob text not null,
    constraint blob_references_key primary key (session_id, blob)`,
  idempotency: `
    scope text not null, key text not null, resource_id text not null, body_hash text not null,
    session_id text not null, created_at text not null,
    constraint idempotency_key primary key (scope, key)`,
  api_keys: `
    id text primary key, hash text not null unique, name text not null, role text not null,
    created_at text not null, expires_at text, last_used_at text, revoked_at text`,
  encryption_keys: 'id text primary key, fingerprint text not null, created_at text not null',
  marks: 'name text primary key, at text not null',
  mcp_sign_ins: `
    id text primary key, turn_id text not null, subject_id text not null, server text not null,
    status text not null, data text not null, redirects integer default 0 not null, replaces text,
    told integer default 0 not null, created_at text not null, expires_at text not null, ended_at text`,
  mcp_grants: `
    id text primary key, subject_id text not null, server text not null, data text not null,
    tokens text not null, version integer not null, refreshing_until text, created_at text not null,
    constraint mcp_grants_by_server unique (subject_id, server)`,
  kept_answers: `
    turn_id text not null, thread_id text not null, tool_call_id text not null, session_id text not null,
    answer text not null,
    constraint kept_answers_key primary key (turn_id, thread_id, tool_call_id)`,
  actions: `
    id text primary key, session_id text not null, turn_id text not null, key text not null,
    thread_id text not null, tool_call_id text, kind text not null, status text not null, agent_name text,
    requested_at text not null, expires_at text, escalated_to text not null, detail text,
    decisions text not null`,
  action_audience: `
    action_id text not null references "actions" ("id") on delete cascade, audience text not null,
    settled integer not null, agent_name text not null, requested_at text not null,
    constraint action_audience_key primary key (action_id, audience)`,
  action_events: `
    sequence bigint primary key, action_id text not null references "actions" ("id") on delete cascade,
    type text not null, status text not null, decisions integer not null`,
  counters: 'name text primary key, value bigint not null',
  webhooks: `
    id text primary key, face text not null, url text not null, events text not null, agent_name text,
    secret text not null, old_secret text, old_secret_until text, created_at text not null, description text,
    disabled integer default 0 not null, updated_at text not null, last_attempt_at text, last_error text,
    last_success_at text, failures integer default 0 not null, failing_since text`,
  // Before the deliveries, since PostgreSQL cascades a deletion in this order: an attempt that is recorded locks the lane
  // first, too.
  delivery_lanes: `
    webhook_id text not null references "webhooks" ("id") on delete cascade, session_id text not null,
    last_sequence bigint not null, due_at text not null, lease text,
    constraint delivery_lanes_key primary key (webhook_id, session_id)`,
  deliveries: `
    id text primary key, webhook_id text not null references "webhooks" ("id") on delete cascade,
    sequence bigint not null, type text not null, session_id text not null, turn_id text, action_id text,
    action_status text, action_decisions integer, change text, created_at text not null,
    status text default 'pending' not null, attempts integer default 0 not null, last_attempt_at text,
    response_status integer, error text`,
  spending: `
    key text primary key, period text not null, tokens bigint not null, usd double precision not null,
    steps bigint not null, worked_ms bigint not null, raised text not null`,
  session_requests: `
    session_id text primary key, request text, agent text, agent_revision integer, group_id text,
    parent_session_id text, first_message text, schedule_id text, idle_timeout_s integer,
    delete_after_min integer, roles text not null, takes_slot integer default 1 not null, queue_number bigint,
    first_turn_id text, start_error text, start_failed_at text, waits_until text, idle_ends_at text,
    delete_at text, cancelled_at text`,
  session_inputs: `
    session_id text not null, number integer not null, request_id text, input text,
    constraint session_inputs_key primary key (session_id, number),
    constraint session_inputs_requests unique (session_id, request_id)`,
  run_secrets: 'session_id text primary key, secrets text not null',
  shared_sessions: 'session_id text primary key, shared_at text not null',
  session_feedback: `
    session_id text not null, place integer not null, success integer not null, message text,
    given_at text not null,
    constraint session_feedback_key primary key (session_id, place)`,
  schedules: `
    id text primary key, name text not null, description text, request text not null, cron text not null,
    timezone text not null, paused integer default 0 not null, pause_note text, repeats integer,
    sessions_created integer default 0 not null, last_run_at text, last_session_id text, claimed_at text,
    subject_id text not null, subject_type text not null, subject_slug text not null, roles text not null,
    key_id text, created_at text not null, updated_at text not null, deleted_at text,
    revision integer default 1 not null, synced_revision integer default 0 not null, checked_at text not null`,
  schedule_runs: `
    id text primary key, schedule_id text not null references "schedules" ("id") on delete cascade,
    status text not null, scheduled_for text not null, session_id text, error text,
    triggered_manually integer not null, created_at text not null`,
  agent_definitions: `
    agent_name text not null, version integer not null, definition text not null, description text not null,
    message text, created_by text not null, restored_from integer,
    constraint agent_definitions_key primary key (agent_name, version)`,
  agent_parts: `
    type text not null, name text not null, kind text, description text not null, definition text not null,
    created_at text not null, updated_at text not null,
    constraint agent_parts_key primary key (type, name)`,
  spec_delegates: `
    spec_hash text not null references "specs" ("hash"),
    delegate_hash text not null references "specs" ("hash"),
    constraint spec_delegates_key primary key (spec_hash, delegate_hash)`,
  delegations: `
    child_session_id text primary key, child_turn_id text not null, parent_session_id text not null,
    parent_turn_id text not null, thread_id text not null, tool_call_id text not null, agent text not null,
    depth integer not null, created_at text not null, told integer default 0 not null`,
};

/**
 * The first two indexes of `sessions` are wider than their lists need: without statistics on the number of rows, SQLite
 * prefers the narrower of two usable indexes, and would use these for the lists that the next three serve.
 */
const INDEXES: Index[] = [
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
  ['sessions_by_spec', 'sessions', ['spec_hash', 'type', 'active_at']],
  ['sessions_by_time', 'sessions', ['created_at', 'id']],
  ['sessions_by_owner', 'sessions', ['subject_id', 'created_at', 'id']],
  ['session_requests_by_group', 'session_requests', ['group_id', 'session_id']],
  ['session_requests_by_parent', 'session_requests', ['parent_session_id', 'session_id']],
  ['session_requests_by_schedule', 'session_requests', ['schedule_id', 'session_id']],
  ['session_requests_queued', 'session_requests', ['queue_number']],
  ['session_requests_starting', 'session_requests', ['first_turn_id']],
  ['session_requests_waiting', 'session_requests', ['waits_until']],
  ['session_requests_idle', 'session_requests', ['idle_ends_at']],
  ['session_requests_to_delete', 'session_requests', ['delete_at']],
  ['sessions_unswept', 'sessions', ['unswept_since']],
  ['sessions_to_remove', 'sessions', ['removal_at', 'id']],
  ['turns_by_session', 'turns', ['session_id', 'sequence']],
  ['turns_by_place', 'turns', ['session_id', 'events_before']],
  ['turns_by_previous', 'turns', ['previous_turn_id']],
  ['agents_by_spec', 'agents', ['spec_hash']],
  ['agent_versions_by_spec', 'agent_versions', ['spec_hash']],
  ['specs_by_retention', 'specs', ['retention_days', 'hash']],
  ['specs_unused', 'specs', ['unused_since']],
  ['spec_delegates_by_delegate', 'spec_delegates', ['delegate_hash']],
  ['delegations_by_parent', 'delegations', ['parent_session_id', 'created_at', 'child_session_id']],
  ['delegations_by_parent_turn', 'delegations', ['parent_turn_id', 'told']],
  ['delegations_by_child_turn', 'delegations', ['child_turn_id', 'told']],
  ['delegations_untold', 'delegations', ['told', 'created_at']],
  ['idempotency_by_session', 'idempotency', ['session_id']],
  ['mcp_sign_ins_by_turn', 'mcp_sign_ins', ['turn_id', 'server']],
  ['mcp_sign_ins_by_time', 'mcp_sign_ins', ['created_at']],
  ['mcp_sign_ins_untold', 'mcp_sign_ins', ['told', 'id']],
  ['actions_by_session', 'actions', ['session_id', 'status']],
  ['actions_by_turn', 'actions', ['turn_id']],
  ['kept_answers_by_session', 'kept_answers', ['session_id']],
  ['action_audience_by_time', 'action_audience', ['audience', 'settled', 'requested_at', 'action_id']],
  ['action_audience_by_agent', 'action_audience', ['audience', 'settled', 'agent_name', 'requested_at', 'action_id']],
  ['action_events_by_action', 'action_events', ['action_id']],
  ['deliveries_by_webhook', 'deliveries', ['webhook_id', 'sequence']],
  ['deliveries_by_lane', 'deliveries', ['webhook_id', 'session_id', 'status', 'sequence']],
  ['deliveries_by_session', 'deliveries', ['session_id']],
  ['deliveries_by_status', 'deliveries', ['status', 'created_at']],
  ['delivery_lanes_due', 'delivery_lanes', ['webhook_id', 'due_at']],
  ['delivery_lanes_by_session', 'delivery_lanes', ['session_id']],
  ['schedules_by_subject', 'schedules', ['subject_id', 'created_at', 'id']],
  ['schedule_runs_by_time', 'schedule_runs', ['schedule_id', 'scheduled_for', 'id']],
  // Holds only the turns that run or still have to be archived: housekeeping and the limits on turns scan it.
  ['turns_unarchived', 'turns', ['created_at'], { where: '"archived" = 0' }],
];
