import { sql, type Kysely } from 'kysely';

/** The first migration, which never changes: see `migrations.ts`. */
export async function createInitialTables(db: Kysely<unknown>): Promise<void> {
  await createTables(db);
  await createActionTables(db);
  await createWebhookTables(db);
  await createBudgetTables(db);
  await createAgentsV2Tables(db);
  await createDelegationTables(db);
  await createIndexes(db);
}

/** The columns are described in `schema.ts`. */
async function createTables({ schema }: Kysely<unknown>): Promise<void> {
  await schema
    .createTable('specs')
    .addColumn('hash', 'text', (c) => c.primaryKey())
    .addColumn('spec', 'text', (c) => c.notNull())
    .addColumn('retention_days', 'integer')
    .addColumn('unused_since', 'text')
    .execute();
  await schema
    .createTable('agents')
    .addColumn('name', 'text', (c) => c.primaryKey())
    .addColumn('version', 'integer', (c) => c.notNull())
    .addColumn('spec_hash', 'text', (c) => c.notNull().references('specs.hash'))
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addColumn('updated_at', 'text', (c) => c.notNull())
    .execute();
  await schema
    .createTable('agent_versions')
    .addColumn('agent_name', 'text', (c) => c.notNull())
    .addColumn('version', 'integer', (c) => c.notNull())
    .addColumn('spec_hash', 'text', (c) => c.notNull().references('specs.hash'))
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('agent_versions_key', ['agent_name', 'version'])
    .execute();
  await schema
    .createTable('sessions')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('type', 'text', (c) => c.notNull())
    .addColumn('agent_name', 'text')
    .addColumn('agent_version', 'integer')
    .addColumn('spec_hash', 'text', (c) => c.notNull().references('specs.hash'))
    .addColumn('draft_roles', 'text')
    .addColumn('title', 'text')
    .addColumn('subject_id', 'text', (c) => c.notNull())
    .addColumn('subject_type', 'text', (c) => c.notNull())
    .addColumn('subject_slug', 'text', (c) => c.notNull())
    .addColumn('metadata', 'text')
    .addColumn('closed', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addColumn('updated_at', 'text', (c) => c.notNull())
    .addColumn('active_at', 'text', (c) => c.notNull())
    .addColumn('unswept_since', 'text')
    .addColumn('cost_in_usd', 'double precision', (c) => c.defaultTo(0))
    .addColumn('input_tokens', 'bigint', (c) => c.notNull().defaultTo(0))
    .addColumn('output_tokens', 'bigint', (c) => c.notNull().defaultTo(0))
    .addColumn('model_calls', 'bigint', (c) => c.notNull().defaultTo(0))
    .addColumn('tool_calls', 'bigint', (c) => c.notNull().defaultTo(0))
    .addColumn('waited_ms', 'bigint', (c) => c.notNull().defaultTo(0))
    .addColumn('last_turn_at', 'text')
    .addColumn('last_end', 'text')
    .addColumn('ended_at', 'text')
    .addColumn('deleted_at', 'text')
    .addColumn('removal_at', 'text')
    .execute();
  await schema
    .createTable('turns')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('previous_turn_id', 'text')
    .addColumn('sequence', 'integer')
    .addColumn('queue_number', 'integer')
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addColumn('archived_through', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('archived', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('events_before', 'integer')
    .addColumn('indexed_through', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('answers', 'text')
    .addColumn('may_pause', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('paused', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('paused_changed_at', 'text')
    .addColumn('counted_ms', 'bigint', (c) => c.notNull().defaultTo(0))
    .addColumn('told_through', 'integer', (c) => c.notNull().defaultTo(0))
    .execute();
  await schema
    .createTable('archive')
    .addColumn('turn_id', 'text', (c) => c.notNull())
    .addColumn('ordinal', 'integer', (c) => c.notNull())
    .addColumn('record', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('archive_key', ['turn_id', 'ordinal'])
    .execute();
  await schema
    .createTable('blob_references')
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('blob', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('blob_references_key', ['session_id', 'blob'])
    .execute();
  await schema
    .createTable('idempotency')
    .addColumn('scope', 'text', (c) => c.notNull())
    .addColumn('key', 'text', (c) => c.notNull())
    .addColumn('resource_id', 'text', (c) => c.notNull())
    .addColumn('body_hash', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('idempotency_key', ['scope', 'key'])
    .execute();
  await schema
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
  await schema
    .createTable('encryption_keys')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('fingerprint', 'text', (c) => c.notNull())
    .addColumn('created_at', 'text', (c) => c.notNull())
    .execute();
  await schema
    .createTable('marks')
    .addColumn('name', 'text', (c) => c.primaryKey())
    .addColumn('at', 'text', (c) => c.notNull())
    .execute();
  await schema
    .createTable('mcp_sign_ins')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('turn_id', 'text', (c) => c.notNull())
    .addColumn('subject_id', 'text', (c) => c.notNull())
    .addColumn('server', 'text', (c) => c.notNull())
    .addColumn('status', 'text', (c) => c.notNull())
    .addColumn('data', 'text', (c) => c.notNull())
    .addColumn('redirects', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('replaces', 'text')
    .addColumn('told', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addColumn('expires_at', 'text', (c) => c.notNull())
    .addColumn('ended_at', 'text')
    .execute();
  await schema
    .createTable('mcp_grants')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('subject_id', 'text', (c) => c.notNull())
    .addColumn('server', 'text', (c) => c.notNull())
    .addColumn('data', 'text', (c) => c.notNull())
    .addColumn('tokens', 'text', (c) => c.notNull())
    .addColumn('version', 'integer', (c) => c.notNull())
    .addColumn('refreshing_until', 'text')
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addUniqueConstraint('mcp_grants_by_server', ['subject_id', 'server'])
    .execute();
}

async function createActionTables({ schema }: Kysely<unknown>): Promise<void> {
  await schema
    .createTable('kept_answers')
    .addColumn('turn_id', 'text', (c) => c.notNull())
    .addColumn('thread_id', 'text', (c) => c.notNull())
    .addColumn('tool_call_id', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('answer', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('kept_answers_key', ['turn_id', 'thread_id', 'tool_call_id'])
    .execute();
  await schema
    .createTable('actions')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('turn_id', 'text', (c) => c.notNull())
    .addColumn('key', 'text', (c) => c.notNull())
    .addColumn('thread_id', 'text', (c) => c.notNull())
    .addColumn('tool_call_id', 'text')
    .addColumn('kind', 'text', (c) => c.notNull())
    .addColumn('status', 'text', (c) => c.notNull())
    .addColumn('agent_name', 'text')
    .addColumn('requested_at', 'text', (c) => c.notNull())
    .addColumn('expires_at', 'text')
    .addColumn('escalated_to', 'text', (c) => c.notNull())
    .addColumn('detail', 'text')
    .addColumn('decisions', 'text', (c) => c.notNull())
    .execute();
  await schema
    .createTable('action_audience')
    .addColumn('action_id', 'text', (c) => c.notNull().references('actions.id').onDelete('cascade'))
    .addColumn('audience', 'text', (c) => c.notNull())
    .addColumn('settled', 'integer', (c) => c.notNull())
    .addColumn('agent_name', 'text', (c) => c.notNull())
    .addColumn('requested_at', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('action_audience_key', ['action_id', 'audience'])
    .execute();
  await schema
    .createTable('action_events')
    .addColumn('sequence', 'bigint', (c) => c.primaryKey())
    .addColumn('action_id', 'text', (c) => c.notNull().references('actions.id').onDelete('cascade'))
    .addColumn('type', 'text', (c) => c.notNull())
    .addColumn('status', 'text', (c) => c.notNull())
    .addColumn('decisions', 'integer', (c) => c.notNull())
    .execute();
  await schema
    .createTable('counters')
    .addColumn('name', 'text', (c) => c.primaryKey())
    .addColumn('value', 'bigint', (c) => c.notNull())
    .execute();
}

async function createBudgetTables({ schema }: Kysely<unknown>): Promise<void> {
  await schema
    .createTable('spending')
    .addColumn('key', 'text', (c) => c.primaryKey())
    .addColumn('period', 'text', (c) => c.notNull())
    .addColumn('tokens', 'bigint', (c) => c.notNull())
    .addColumn('usd', 'double precision', (c) => c.notNull())
    .addColumn('steps', 'bigint', (c) => c.notNull())
    .addColumn('worked_ms', 'bigint', (c) => c.notNull())
    .addColumn('raised', 'text', (c) => c.notNull())
    .execute();
}

async function createAgentsV2Tables({ schema }: Kysely<unknown>): Promise<void> {
  await schema
    .createTable('session_requests')
    .addColumn('session_id', 'text', (c) => c.primaryKey())
    .addColumn('request', 'text')
    .addColumn('agent', 'text')
    .addColumn('agent_revision', 'integer')
    .addColumn('group_id', 'text')
    .addColumn('parent_session_id', 'text')
    .addColumn('first_message', 'text')
    .addColumn('schedule_id', 'text')
    .addColumn('idle_timeout_s', 'integer')
    .addColumn('delete_after_min', 'integer')
    .addColumn('roles', 'text', (c) => c.notNull())
    .addColumn('takes_slot', 'integer', (c) => c.notNull().defaultTo(1))
    .addColumn('queue_number', 'bigint')
    .addColumn('first_turn_id', 'text')
    .addColumn('start_error', 'text')
    .addColumn('start_failed_at', 'text')
    .addColumn('waits_until', 'text')
    .addColumn('idle_ends_at', 'text')
    .addColumn('delete_at', 'text')
    .addColumn('cancelled_at', 'text')
    .execute();
  await schema
    .createTable('session_inputs')
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('number', 'integer', (c) => c.notNull())
    .addColumn('request_id', 'text')
    .addColumn('input', 'text')
    .addPrimaryKeyConstraint('session_inputs_key', ['session_id', 'number'])
    .addUniqueConstraint('session_inputs_requests', ['session_id', 'request_id'])
    .execute();
  await schema
    .createTable('run_secrets')
    .addColumn('session_id', 'text', (c) => c.primaryKey())
    .addColumn('secrets', 'text', (c) => c.notNull())
    .execute();
  await schema
    .createTable('shared_sessions')
    .addColumn('session_id', 'text', (c) => c.primaryKey())
    .addColumn('shared_at', 'text', (c) => c.notNull())
    .execute();
  await schema
    .createTable('session_feedback')
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('place', 'integer', (c) => c.notNull())
    .addColumn('success', 'integer', (c) => c.notNull())
    .addColumn('message', 'text')
    .addColumn('given_at', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('session_feedback_key', ['session_id', 'place'])
    .execute();
  await schema
    .createTable('schedules')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('name', 'text', (c) => c.notNull())
    .addColumn('description', 'text')
    .addColumn('request', 'text', (c) => c.notNull())
    .addColumn('cron', 'text', (c) => c.notNull())
    .addColumn('timezone', 'text', (c) => c.notNull())
    .addColumn('paused', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('pause_note', 'text')
    .addColumn('repeats', 'integer')
    .addColumn('sessions_created', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('last_run_at', 'text')
    .addColumn('last_session_id', 'text')
    .addColumn('claimed_at', 'text')
    .addColumn('subject_id', 'text', (c) => c.notNull())
    .addColumn('subject_type', 'text', (c) => c.notNull())
    .addColumn('subject_slug', 'text', (c) => c.notNull())
    .addColumn('roles', 'text', (c) => c.notNull())
    .addColumn('key_id', 'text')
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addColumn('updated_at', 'text', (c) => c.notNull())
    .addColumn('deleted_at', 'text')
    .addColumn('revision', 'integer', (c) => c.notNull().defaultTo(1))
    .addColumn('synced_revision', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('checked_at', 'text', (c) => c.notNull())
    .execute();
  await schema
    .createTable('schedule_runs')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('schedule_id', 'text', (c) => c.notNull().references('schedules.id').onDelete('cascade'))
    .addColumn('status', 'text', (c) => c.notNull())
    .addColumn('scheduled_for', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text')
    .addColumn('error', 'text')
    .addColumn('triggered_manually', 'integer', (c) => c.notNull())
    .addColumn('created_at', 'text', (c) => c.notNull())
    .execute();
  await schema
    .createTable('agent_definitions')
    .addColumn('agent_name', 'text', (c) => c.notNull())
    .addColumn('version', 'integer', (c) => c.notNull())
    .addColumn('definition', 'text', (c) => c.notNull())
    .addColumn('description', 'text', (c) => c.notNull())
    .addColumn('message', 'text')
    .addColumn('created_by', 'text', (c) => c.notNull())
    .addColumn('restored_from', 'integer')
    .addPrimaryKeyConstraint('agent_definitions_key', ['agent_name', 'version'])
    .execute();
  await schema
    .createTable('agent_parts')
    .addColumn('type', 'text', (c) => c.notNull())
    .addColumn('name', 'text', (c) => c.notNull())
    .addColumn('kind', 'text')
    .addColumn('description', 'text', (c) => c.notNull())
    .addColumn('definition', 'text', (c) => c.notNull())
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addColumn('updated_at', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('agent_parts_key', ['type', 'name'])
    .execute();
}

async function createDelegationTables({ schema }: Kysely<unknown>): Promise<void> {
  await schema
    .createTable('spec_delegates')
    .addColumn('spec_hash', 'text', (c) => c.notNull().references('specs.hash'))
    .addColumn('delegate_hash', 'text', (c) => c.notNull().references('specs.hash'))
    .addPrimaryKeyConstraint('spec_delegates_key', ['spec_hash', 'delegate_hash'])
    .execute();
  await schema
    .createTable('delegations')
    .addColumn('child_session_id', 'text', (c) => c.primaryKey())
    .addColumn('child_turn_id', 'text', (c) => c.notNull())
    .addColumn('parent_session_id', 'text', (c) => c.notNull())
    .addColumn('parent_turn_id', 'text', (c) => c.notNull())
    .addColumn('thread_id', 'text', (c) => c.notNull())
    .addColumn('tool_call_id', 'text', (c) => c.notNull())
    .addColumn('agent', 'text', (c) => c.notNull())
    .addColumn('depth', 'integer', (c) => c.notNull())
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addColumn('told', 'integer', (c) => c.notNull().defaultTo(0))
    .execute();
}

async function createWebhookTables({ schema }: Kysely<unknown>): Promise<void> {
  await schema
    .createTable('webhooks')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('face', 'text', (c) => c.notNull())
    .addColumn('url', 'text', (c) => c.notNull())
    .addColumn('events', 'text', (c) => c.notNull())
    .addColumn('agent_name', 'text')
    .addColumn('secret', 'text', (c) => c.notNull())
    .addColumn('old_secret', 'text')
    .addColumn('old_secret_until', 'text')
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addColumn('description', 'text')
    .addColumn('disabled', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('updated_at', 'text', (c) => c.notNull())
    .addColumn('last_attempt_at', 'text')
    .addColumn('last_error', 'text')
    .addColumn('last_success_at', 'text')
    .addColumn('failures', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('failing_since', 'text')
    .execute();
  // Before the deliveries, since PostgreSQL cascades a deletion in this order: an attempt that is recorded locks the lane
  // first, too.
  await schema
    .createTable('delivery_lanes')
    .addColumn('webhook_id', 'text', (c) => c.notNull().references('webhooks.id').onDelete('cascade'))
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('last_sequence', 'bigint', (c) => c.notNull())
    .addColumn('due_at', 'text', (c) => c.notNull())
    .addColumn('lease', 'text')
    .addPrimaryKeyConstraint('delivery_lanes_key', ['webhook_id', 'session_id'])
    .execute();
  await schema
    .createTable('deliveries')
    .addColumn('id', 'text', (c) => c.primaryKey())
    .addColumn('webhook_id', 'text', (c) => c.notNull().references('webhooks.id').onDelete('cascade'))
    .addColumn('sequence', 'bigint', (c) => c.notNull())
    .addColumn('type', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('turn_id', 'text')
    .addColumn('action_id', 'text')
    .addColumn('action_status', 'text')
    .addColumn('action_decisions', 'integer')
    .addColumn('change', 'text')
    .addColumn('created_at', 'text', (c) => c.notNull())
    .addColumn('status', 'text', (c) => c.notNull().defaultTo('pending'))
    .addColumn('attempts', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('last_attempt_at', 'text')
    .addColumn('response_status', 'integer')
    .addColumn('error', 'text')
    .execute();
}

/**
 * The first two indexes of `sessions` are wider than their lists need: without statistics on the number of rows, SQLite
 * prefers the narrower of two usable indexes, and would use these for the lists that the next three serve.
 */
const INDEXES: [name: string, table: string, columns: string[]][] = [
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
];

async function createIndexes({ schema }: Kysely<unknown>): Promise<void> {
  for (const [name, table, columns] of INDEXES) await schema.createIndex(name).on(table).columns(columns).execute();
  // Holds only the turns that run or still have to be archived: housekeeping and the limits on turns scan it.
  await schema
    .createIndex('turns_unarchived')
    .on('turns')
    .column('created_at')
    .where(sql.ref('archived'), '=', 0)
    .execute();
}
