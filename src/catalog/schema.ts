import type { Generated, Insertable, Selectable } from 'kysely';
import type { ActionKind } from '../core/actions.ts';
import type { Role } from '../core/subject.ts';
import type { SessionState, TurnState } from '../core/session-state.ts';

/**
 * The catalog's tables: one schema for SQLite and PostgreSQL, with types that both have. Times are ISO-8601 UTC with
 * milliseconds, which sort as text; JSON is text; flags are 0 and 1.
 */
export interface Tables {
  specs: SpecsTable;
  spec_delegates: SpecDelegatesTable;
  agents: AgentsTable;
  agent_versions: AgentVersionsTable;
  sessions: SessionsTable;
  turns: TurnsTable;
  delegations: DelegationsTable;
  archive: ArchiveTable;
  blob_references: BlobReferencesTable;
  stored_blobs: StoredBlobsTable;
  idempotency: IdempotencyTable;
  api_keys: ApiKeysTable;
  subject_roles: SubjectRolesTable;
  model_servers: ModelServersTable;
  encryption_keys: EncryptionKeysTable;
  marks: MarksTable;
  mcp_sign_ins: McpSignInsTable;
  mcp_grants: McpGrantsTable;
  actions: ActionsTable;
  kept_answers: KeptAnswersTable;
  action_audience: ActionAudienceTable;
  action_events: ActionEventsTable;
  webhooks: WebhooksTable;
  deliveries: DeliveriesTable;
  delivery_lanes: DeliveryLanesTable;
  counters: CountersTable;
  spending: SpendingTable;
  session_requests: SessionRequestsTable;
  shared_sessions: SharedSessionsTable;
  session_feedback: SessionFeedbackTable;
  schedules: SchedulesTable;
  schedule_runs: ScheduleRunsTable;
  agent_definitions: AgentDefinitionsTable;
  agent_parts: AgentPartsTable;
  session_inputs: SessionInputsTable;
  run_secrets: RunSecretsTable;
  run_summaries: RunSummariesTable;
  session_texts: SessionTextsTable;
}

/** Content-addressed, immutable agent specs. */
interface SpecsTable {
  hash: string;
  spec: string;
  /** `config.retention_days` of the spec, as an indexed column. */
  retention_days: number | null;
  /** When it was stored, or a session last stopped using it. `Agents.forgetSpecs` checks whether it is still in use. */
  unused_since: Generated<string | null>;
}

/** Which specs refer to which others: see `Delegate` in `src/spec/agent-spec.ts`. */
interface SpecDelegatesTable {
  spec_hash: string;
  delegate_hash: string;
}

/** The newest version of each existing agent. */
interface AgentsTable {
  name: string;
  version: number;
  spec_hash: string;
  created_at: string;
  updated_at: string;
}

/** All versions of all agents, deleted ones included: sessions are pinned to them, and numbers are never reused. */
interface AgentVersionsTable {
  agent_name: string;
  version: number;
  spec_hash: string;
  created_at: string;
}

interface SessionsTable {
  id: string;
  /** `run`: of the run API. It has one turn, and no other face shows it, nor its `run/delegate`: that of a call's agent. */
  type: 'session' | 'session/draft' | 'run' | 'run/delegate';
  agent_name: string | null;
  /** Null for drafts, which have their own spec. */
  agent_version: number | null;
  spec_hash: string;
  /** The roles that the author of the agent had when writing it; null for sessions with a registered agent. */
  draft_roles: Generated<string | null>;
  title: string | null;
  subject_id: string;
  subject_type: string;
  subject_slug: string;
  metadata: string | null;
  closed: Generated<number>;
  created_at: string;
  updated_at: string;
  /** The last activity in the session; its retention counts from here. */
  active_at: string;
  /** Since when unreferenced blobs may have been stored; null if they were collected after the last turn. */
  unswept_since: Generated<string | null>;
  /** What the ended turns cost; null once one of them used a model of unknown price. */
  cost_in_usd: Generated<number | null>;
  /** The sums of the ended turns. */
  input_tokens: Generated<number>;
  output_tokens: Generated<number>;
  model_calls: Generated<number>;
  tool_calls: Generated<number>;
  waited_ms: Generated<number>;
  /** What it stores: see `StoredBytes`. */
  stored_bytes: Generated<number>;
  /** See `session-states.ts`. Null: not yet derived, since another version has written the row. */
  state: Generated<SessionState | null>;
  /** When it has ended: by its last turn, the end of its idle timeout, or its cancellation. Null while it has not. */
  ended_at: Generated<string | null>;
  /** A deleted session no longer exists for any caller; the row remains until all its data is removed. */
  deleted_at: Generated<string | null>;
  /** When housekeeping next continues the removal. */
  removal_at: Generated<string | null>;
}

/**
 * The index of turns. A row without a sequence is a request: it is written before the command is sent to the session
 * workflow, so that a crash in between leaves a trace. Temporal determines whether the turn of a request exists.
 */
interface TurnsTable {
  id: string;
  session_id: string;
  previous_turn_id: string | null;
  sequence: number | null;
  /**
   * The number of a turn that waits in the queue of its session, or has waited there. While it waits, and for ever if it
   * ends there, it has no sequence.
   */
  queue_number: Generated<number | null>;
  created_at: string;
  /**
   * The archive has the entries up to this ordinal, and all rows that derive from them were written with them: those of
   * actions, and the states of the turn and its session.
   */
  archived_through: Generated<number>;
  /** Whether the archive has the complete log. */
  archived: Generated<number>;
  /**
   * The turn's place in its session: how many durable events come before it. Null until a reader of the session needs
   * it. It is never changed, since the cursors of session streams are counted from it.
   */
  events_before: number | null;
  /** How the turn's input answers the pending calls of the previous turn; null if it answers none. */
  answers: Generated<string | null>;
  /** Its state as of `archived_through`. Null: not yet derived, since another version has written the row. */
  state: Generated<TurnState | null>;
  /** Since when it has that state; null for the request of a turn. */
  state_at: Generated<string | null>;
  /** The state in which it has left its session: see `stateAfter`. Null while it has not ended. */
  leaves: Generated<SessionState | null>;
  /** How much of the time for which the turn works was added to the budgets that it shares, in milliseconds. */
  counted_ms: Generated<number>;
}

/** The sessions of agents that answer the tool calls of other agents, each with the call of its parent. */
interface DelegationsTable {
  child_session_id: string;
  /** The first turn of the session, whose end is the result of the call. */
  child_turn_id: string;
  parent_session_id: string;
  parent_turn_id: string;
  thread_id: string;
  tool_call_id: string;
  /** The name of the delegate. */
  agent: string;
  /** 1 for a child of a session without a parent. */
  depth: number;
  created_at: string;
  /** The parent's turn has the result, or has ended without it: nothing is left to do. */
  told: Generated<number>;
}

/** The logs of turns: one row per entry. */
interface ArchiveTable {
  turn_id: string;
  ordinal: number;
  record: string;
}

/** Timestamps up to which recurring work is complete. */
interface MarksTable {
  name: string;
  at: string;
}

/** The blobs that the archived records of a session refer to. */
interface BlobReferencesTable {
  session_id: string;
  blob: string;
}

/** The blobs that are stored, with their sizes; not those that were stored before sizes were. */
interface StoredBlobsTable {
  session_id: string;
  blob: string;
  bytes: number;
}

/** The resource that a request with this key, or with this body, created. */
interface IdempotencyTable {
  scope: string;
  key: string;
  resource_id: string;
  body_hash: string;
  /**
   * The session that was created, or in which the resource was; its rows are deleted with it. Empty if there is none.
   */
  session_id: string;
  /** When the request arrived, or when its response was lost. */
  created_at: string;
}

/** API keys created by `everturn keys create`. */
interface ApiKeysTable {
  id: string;
  /** SHA-256 of the key; the key itself is not stored. */
  hash: string;
  /** Id and slug of the subject that the key authenticates. A subject may have several keys. */
  name: string;
  role: Role;
  created_at: string;
  expires_at: string | null;
  /** To the minute. */
  last_used_at: string | null;
  revoked_at: string | null;
}

/** The model servers that have ever answered. */
interface ModelServersTable {
  provider: string;
  /** The SHA-256 of its base URL; of an empty text for the provider's own. */
  url_hash: string;
  /** When it answered first. */
  answered_at: string;
}

/** The roles of the bearers of tokens, by the last token of each that the server has seen. */
interface SubjectRolesTable {
  subject_id: string;
  /** JSON. */
  roles: string;
  /** When that token was issued. */
  issued_at: string;
}

/** The keys that were used for encryption. */
interface EncryptionKeysTable {
  id: string;
  fingerprint: string;
  created_at: string;
}

/** The sign-ins to MCP servers that turns have requested. */
interface McpSignInsTable {
  /** SHA-256 of the `state` in the link to the sign-in. */
  id: string;
  turn_id: string;
  subject_id: string;
  /** Names the server: see `serverKey`. */
  server: string;
  status: SignInStatus;
  /** JSON, encrypted: what `SignIns` keeps. */
  data: string;
  /** How often the user was sent to the authorization server. */
  redirects: Generated<number>;
  /** The grant whose access is not enough for what the turn does; null if there was none. */
  replaces: string | null;
  /** Whether the turn knows that it has ended. */
  told: Generated<number>;
  created_at: string;
  expires_at: string;
  /** When it was granted, declined or replaced. */
  ended_at: Generated<string | null>;
}

/**
 * - `requested`: the user has not come back from the authorization server.
 * - `exchanging`: the code is being exchanged for tokens. A code is used once, so a crash leaves this status, and the
 *   user begins again.
 * - `replaced`: its link was used in a second browser, or too often. A turn that waits requests another one.
 */
export type SignInStatus = 'requested' | 'exchanging' | 'granted' | 'declined' | 'replaced';

/** The access of subjects to MCP servers. */
interface McpGrantsTable {
  id: string;
  subject_id: string;
  /** As in `mcp_sign_ins`. */
  server: string;
  /** JSON, encrypted: the server, and how its tokens are refreshed and revoked. */
  data: string;
  /** JSON, encrypted. */
  tokens: string;
  /** Counts the changes of `tokens`. */
  version: number;
  /** Until when one process may refresh the tokens; null if none does. */
  refreshing_until: string | null;
  created_at: string;
}

/**
 * Answers to calls that are pending on an ended turn, before all of them are answered and the next turn starts. They end
 * with any turn that follows.
 */
interface KeptAnswersTable {
  turn_id: string;
  thread_id: string;
  tool_call_id: string;
  session_id: string;
  /** JSON, encrypted: a `KeptAnswer`. */
  answer: string;
}

export const ACTION_STATUSES = ['pending', 'decided', 'expired', 'superseded'] as const;

/**
 * `superseded`: nobody can answer it any more, because the conversation continued elsewhere, its turn ended without it,
 * or its session was closed or deleted.
 */
export type ActionStatus = (typeof ACTION_STATUSES)[number];

/** The index of what waits or has waited for a person or a client. The logs of their turns are the truth. */
interface ActionsTable {
  id: string;
  session_id: string;
  /** The turn on which it is pending. */
  turn_id: string;
  /** Names it in its turn: see `NewAction`. */
  key: string;
  thread_id: string;
  tool_call_id: string | null;
  kind: ActionKind;
  status: ActionStatus;
  agent_name: string | null;
  requested_at: string;
  expires_at: string | null;
  /** JSON: the groups that may decide it, too, once it is escalated. */
  escalated_to: string;
  /** JSON; null once the session is deleted. */
  detail: string | null;
  /** JSON: a list. */
  decisions: string;
}

/** Who may decide an action (see `src/auth/rights.ts`), with the columns by which the inbox is listed. */
interface ActionAudienceTable {
  action_id: string;
  audience: string;
  /** 0 while the action is pending. */
  settled: number;
  /** Empty for a draft without a name. */
  agent_name: string;
  requested_at: string;
}

/** The changes of actions, in the order of their commits. */
interface ActionEventsTable {
  sequence: number;
  action_id: string;
  type: ActionEventType;
  /** The state of the action after the change. */
  status: ActionStatus;
  decisions: number;
}

export const ACTION_EVENT_TYPES = ['action.created', 'action.decided', 'action.expired'] as const;

export type ActionEventType = (typeof ACTION_EVENT_TYPES)[number];

/** The events for which webhooks can be registered. */
export const WEBHOOK_EVENT_TYPES = ['turn.done', ...ACTION_EVENT_TYPES] as const;

export type WebhookEventType = (typeof WEBHOOK_EVENT_TYPES)[number];

/** `session.changed`: the state of a session may be another one. */
export type OutboxEventType = WebhookEventType | 'session.changed';

/** The API with which a webhook was registered, which decides what it is sent. */
export type WebhookFace = 'sessions' | 'agents-v2';

interface WebhooksTable {
  id: string;
  face: WebhookFace;
  url: string;
  /** JSON: a list of `WebhookEventType`. Webhooks of the Agents API v2 have lists of its types. */
  events: string;
  /** Null: the events of all agents. */
  agent_name: string | null;
  secret: string;
  /** The secret before the last rotation, which also signs until `old_secret_until`. */
  old_secret: Generated<string | null>;
  old_secret_until: Generated<string | null>;
  created_at: string;
  /** These have meaning for webhooks of the Agents API v2 only. */
  description: Generated<string | null>;
  disabled: Generated<number>;
  updated_at: string;
  /** The last attempt at a delivery. */
  last_attempt_at: Generated<string | null>;
  last_error: Generated<string | null>;
  last_success_at: Generated<string | null>;
  /** The failed attempts since the last success, and when the first of them was. */
  failures: Generated<number>;
  failing_since: Generated<string | null>;
}

/** An event to deliver to a webhook, or one that was delivered or given up a few days ago. */
interface DeliveriesTable {
  /** Also the id of the message that the receiver gets. */
  id: string;
  webhook_id: string;
  sequence: number;
  type: OutboxEventType | 'ping';
  /** Empty for a ping. */
  session_id: string;
  turn_id: string | null;
  action_id: string | null;
  /** The state of the action after the event. */
  action_status: ActionStatus | null;
  action_decisions: number | null;
  /** JSON: the `StateChange` of a session. */
  change: string | null;
  created_at: string;
  status: Generated<'pending' | 'delivered' | 'failed'>;
  attempts: Generated<number>;
  last_attempt_at: Generated<string | null>;
  /** The HTTP status of the last attempt; null if there was no answer. */
  response_status: Generated<number | null>;
  error: Generated<string | null>;
}

/**
 * The pending deliveries of one session to one webhook, which are sent one after the other by the worker that holds the
 * lane's lease.
 */
interface DeliveryLanesTable {
  webhook_id: string;
  session_id: string;
  /** The sequence of the newest delivery. */
  last_sequence: number;
  /** When a worker may take the lane: the time of the next attempt, or the end of the current lease. */
  due_at: string;
  lease: Generated<string | null>;
}

/** A row is locked until its transaction ends, so that numbers are committed in their order. */
interface CountersTable {
  name: string;
  value: number;
}

/** What the sessions and subjects with budgets have used in their current period. */
interface SpendingTable {
  /** The scope and the id. */
  key: string;
  /** A day or a month; empty for a session. */
  period: string;
  tokens: number;
  usd: number;
  steps: number;
  /** The time for which turns have worked. */
  worked_ms: number;
  /** JSON: the limits as they were raised for the period. */
  raised: string;
}

/**
 * What a session of the Agents API v2 was created with, or one in which an agent works for another. Other sessions have no
 * such row.
 */
export interface SessionRequestsTable {
  session_id: string;
  /** JSON, encrypted: the resolved request, as `src/api/agents-v2/stored-request.ts` has it; null if an agent made it. */
  request: string | null;
  /** The name by which the agent was requested; null if it was defined in the request. */
  agent: string | null;
  agent_revision: number | null;
  group_id: string | null;
  parent_session_id: string | null;
  /** The beginning of its first message, encrypted, for lists; null if it was created without one. */
  first_message: Generated<string | null>;
  /** The schedule that has created it; null if a request has. */
  schedule_id: Generated<string | null>;
  /** In seconds; null: the first answer ends the session. */
  idle_timeout_s: number | null;
  /** In minutes, from its end; null: it is kept. */
  delete_after_min: Generated<number | null>;
  /** JSON: the roles of its creator, with which its first turn is started. */
  roles: string;
  /** 0: it needs no slot, since an agent of a session that needs none has created it. */
  takes_slot: Generated<number>;
  /** Its number in the queue of sessions that wait for a slot; null if it does not wait. */
  queue_number: Generated<number | null>;
  /**
   * The turn to be started with its inputs. It is set in the transaction that gives the session a slot, and null once the
   * turn is in the index, so that a crash in between does not lose the turn.
   */
  first_turn_id: Generated<string | null>;
  /** Why its first turn was rejected, and when. */
  start_error: Generated<string | null>;
  start_failed_at: Generated<string | null>;
  /**
   * Until when the session waits after its last turn: the end of its idle timeout, or `FOREVER` if calls are pending on
   * that turn; it then holds a slot. Null if it waits for nothing. It is written with the end of the turn, so that the
   * holders of slots are found by an index.
   */
  waits_until: Generated<string | null>;
  /** When webhooks are to be told that its idle timeout has ended; null once they were, or if there is nothing to tell. */
  idle_ends_at: Generated<string | null>;
  /** When it may be deleted; null while it has not ended. */
  delete_at: Generated<string | null>;
  /** When it was cancelled last. What it waits for is an engine's fact only while a turn runs. */
  cancelled_at: Generated<string | null>;
}

/** The sessions that are readable without a key. */
interface SharedSessionsTable {
  session_id: string;
  shared_at: string;
}

/** What the owners of sessions think of them; the latest counts. */
interface SessionFeedbackTable {
  session_id: string;
  /** The position of an event; -1: the session as a whole. */
  place: number;
  /** 0 or 1. */
  success: number;
  /** Encrypted. */
  message: string | null;
  given_at: string;
}

/** Times at which sessions of the Agents API v2 are created. */
export interface SchedulesTable {
  id: string;
  /** Encrypted, like the next two. */
  name: string;
  description: string | null;
  /** JSON: what each session is created with; its agent is resolved then. */
  request: string;
  /** Five fields. */
  cron: string;
  /** As IANA names it. */
  timezone: string;
  paused: Generated<number>;
  /** Encrypted. */
  pause_note: Generated<string | null>;
  /** How many sessions it creates before it is paused; null: it is never paused by itself. */
  repeats: number | null;
  /** The sessions that count towards `repeats`: those that no caller has requested. */
  sessions_created: Generated<number>;
  last_run_at: Generated<string | null>;
  /** The newest session that a run has claimed; the next run starts none before it has ended. */
  last_session_id: Generated<string | null>;
  claimed_at: Generated<string | null>;
  subject_id: string;
  subject_type: string;
  subject_slug: string;
  /** JSON: the roles of the owner when it wrote `request`. */
  roles: string;
  /** The key of the catalog with which the owner wrote `request`; null: another credential. */
  key_id: string | null;
  created_at: string;
  updated_at: string;
  /** A deleted schedule no longer exists for any caller; the row remains until Temporal has deleted it. */
  deleted_at: Generated<string | null>;
  /** Counts its changes. */
  revision: Generated<number>;
  /** The revision that Temporal has, as far as is known. */
  synced_revision: Generated<number>;
  /** When Temporal was last asked whether it has the schedule. */
  checked_at: string;
}

export const RUN_STATUSES = ['created', 'skipped_overlap', 'skipped_quota', 'error'] as const;

export type RunStatus = (typeof RUN_STATUSES)[number];

/** What became of the times at which schedules were due. */
export interface ScheduleRunsTable {
  id: string;
  schedule_id: string;
  status: RunStatus;
  scheduled_for: string;
  session_id: string | null;
  /** Encrypted. */
  error: string | null;
  triggered_manually: number;
  created_at: string;
}

/**
 * What the Agents API v2 knows of a version of an agent beside its spec. Versions that were stored by other ways have no
 * such row.
 */
export interface AgentDefinitionsTable {
  agent_name: string;
  version: number;
  /** JSON, encrypted: the definition, with the names of what it refers to. */
  definition: string;
  /** Encrypted. A column of its own, since lists are searched by it. */
  description: string;
  /** Why it was changed; encrypted. */
  message: string | null;
  /** The slug of the subject that has written it. */
  created_by: string;
  /** The earlier version that this one repeats. */
  restored_from: number | null;
}

export type AgentPartType = 'skill' | 'environment';

/** What the agents of the Agents API v2 are made of: skills and environments, by their names. */
export interface AgentPartsTable {
  type: AgentPartType;
  name: string;
  /** Of an environment. */
  kind: string | null;
  /** Encrypted. A column of its own, since lists are searched by it. */
  description: string;
  /** JSON, encrypted. */
  definition: string;
  created_at: string;
  updated_at: string;
}

/** The messages with which a session of the Agents API v2 begins, until its first turn is started. */
interface SessionInputsTable {
  session_id: string;
  /** Counts the requests that brought them. */
  number: number;
  /** Names the request that brought them, so that a repetition is recognized; null for the one that created the session. */
  request_id: string | null;
  /** JSON, encrypted: a list of `InputItem`, with their files. Null once the first turn has them. */
  input: string | null;
}

/** What runs need to use their MCP servers, until they end: see `RunSecrets`. */
interface RunSecretsTable {
  session_id: string;
  /** JSON, encrypted: a `ServerSecrets`. */
  secrets: string;
}

/** The runs as lists show them, as far as the archive has their logs. */
interface RunSummariesTable {
  session_id: string;
  /** JSON, encrypted: a `RunSummary`, as the owner sees it. */
  summary: string;
}

/** The texts of a session by which lists are searched; each the first `LISTED_CHARACTERS` characters, encrypted. */
interface SessionTextsTable {
  session_id: string;
  /** The first message of the first turn. */
  first_message: string | null;
  /** The answer of the last turn that has ended. */
  last_answer: string | null;
}

export type SpendingRow = Selectable<SpendingTable>;
export type DelegationRow = Selectable<DelegationsTable>;
export type NewDelegationRow = Insertable<DelegationsTable>;
export type SessionRow = Selectable<SessionsTable>;
export type NewSessionRow = Omit<Insertable<SessionsTable>, 'active_at'>;
export type SignInRow = Selectable<McpSignInsTable>;
export type NewSignInRow = Insertable<McpSignInsTable>;
export type GrantRow = Selectable<McpGrantsTable>;
export type TurnRow = Selectable<TurnsTable>;
export type ArchiveRow = Selectable<ArchiveTable>;
export type AgentRow = Selectable<AgentsTable>;
export type KeyRow = Selectable<ApiKeysTable>;
export type NewKeyRow = Insertable<ApiKeysTable>;
export type AgentVersionRow = Selectable<AgentVersionsTable>;
export type ActionRow = Selectable<ActionsTable>;
export type WebhookRow = Selectable<WebhooksTable>;
export type DeliveryRow = Selectable<DeliveriesTable>;
