import type { Generated, Insertable, Selectable } from 'kysely';
import type { Role } from '../core/subject.ts';
import type { SessionState, TurnState } from '../core/session-state.ts';

/**
 * The catalog's tables: one schema for SQLite and PostgreSQL, with types that both have. Times are ISO-8601 UTC with
 * milliseconds, which sort as text; JSON is text; flags are 0 and 1. Features declare theirs in this interface, and their
 * columns in the other exported ones.
 */
export interface Tables {
  /** Content-addressed, immutable agent specs. */
  specs: {
    hash: string;
    spec: string;
    /** `config.retention_days` of the spec, as an indexed column. */
    retention_days: number | null;
    /** When it was stored, or a session last stopped using it. `Agents.forgetSpecs` checks whether it is still in use. */
    unused_since: Generated<string | null>;
  };
  /** Which specs refer to which others: see `Delegate` in `src/spec/agent-spec.ts`. */
  spec_delegates: { spec_hash: string; delegate_hash: string };
  /** The newest version of each existing agent. */
  agents: {
    name: string;
    version: number;
    spec_hash: string;
    created_at: string;
    updated_at: string;
  };
  /** All versions of all agents, deleted ones included: sessions are pinned to them, and numbers are never reused. */
  agent_versions: {
    agent_name: string;
    version: number;
    spec_hash: string;
    created_at: string;
  };
  sessions: {
    id: string;
    /** `run`: of the Runs API, with one turn. Only that API shows it and its `run/delegate`, that of a call's agent. */
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
  };
  turns: TurnsTable;
  /** The logs of turns: one row per entry. */
  archive: { turn_id: string; ordinal: number; record: string };
  /** The blobs that the archived records of a session refer to. */
  blob_references: { session_id: string; blob: string };
  /** The blobs that a holder in a session needs, until it needs others. */
  held_blobs: { session_id: string; holder: string; blob: string };
  /** The blobs that are stored, with their sizes; without those that were stored before their sizes were. */
  stored_blobs: { session_id: string; blob: string; bytes: number };
  subject_stored_bytes: SubjectStoredBytesTable;
  stored_bytes_changes: SubjectStoredBytesTable;
  /** The resource that a request with this key, or with this body, created. */
  idempotency: {
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
  };
  /** API keys created by `everturn keys create`. */
  api_keys: {
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
  };
  /** The roles of the bearers of tokens, by the last token of each that the server has seen. */
  subject_roles: {
    subject_id: string;
    /** JSON. */
    roles: string;
    /** When that token was issued. */
    issued_at: string;
  };
  /** The model servers that have ever responded. */
  model_servers: {
    provider: string;
    /** The SHA-256 of its base URL; of an empty text for the provider's own. */
    url_hash: string;
    /** When it responded first. */
    answered_at: string;
  };
  /** The keys that were used for encryption. */
  encryption_keys: { id: string; fingerprint: string; created_at: string };
  /** Timestamps up to which recurring work is complete. */
  marks: { name: string; at: string };
  /** A row is locked until its transaction ends, so that numbers are committed in their order. */
  counters: { name: string; value: number };
  session_requests: SessionRequestsTable;
}

/**
 * The index of turns. A row without a sequence is a request: it is written before the command is sent to the session
 * workflow, so that a crash in between leaves a trace. Temporal determines whether the turn of a request exists.
 */
export interface TurnsTable {
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
  /** Its state as of `archived_through`. Null: not yet derived, since another version has written the row. */
  state: Generated<TurnState | null>;
  /** Since when it has that state; null for the request of a turn. */
  state_at: Generated<string | null>;
  /** The state in which it has left its session: see `stateAfter`. Null while it has not ended. */
  leaves: Generated<SessionState | null>;
}

/** Bytes of the sessions of a subject, or of all: see `StoredBytes`. */
interface SubjectStoredBytesTable {
  subject_id: string;
  bytes: number;
}

/**
 * What the state of a session of the Agents API v2 derives from, or of one in which an agent works for another. Other sessions
 * have no such row.
 */
export interface SessionRequestsTable {
  session_id: string;
  /** In seconds; null: the first turn that leaves the session idle ends it. */
  idle_timeout_s: number | null;
  /** In minutes, from its end; null: it is kept. */
  delete_after_min: Generated<number | null>;
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
   * that turn; it then takes a slot. Null if it waits for nothing. It is written with the end of the turn, so that the
   * holders of slots are found by an index.
   */
  waits_until: Generated<string | null>;
  /** When webhooks are to be notified of the end of its idle timeout; null once they were, or if there is none. */
  idle_ends_at: Generated<string | null>;
  /** When it may be deleted; null while it has not ended. */
  delete_at: Generated<string | null>;
  /** Time of the last cancellation. While no turn runs, nothing else records it. */
  cancelled_at: Generated<string | null>;
}

export type SessionRow = Selectable<Tables['sessions']>;
export type NewSessionRow = Omit<Insertable<Tables['sessions']>, 'active_at'>;
export type TurnRow = Selectable<TurnsTable>;
export type ArchiveRow = Selectable<Tables['archive']>;
export type AgentRow = Selectable<Tables['agents']>;
export type KeyRow = Selectable<Tables['api_keys']>;
export type NewKeyRow = Insertable<Tables['api_keys']>;
export type AgentVersionRow = Selectable<Tables['agent_versions']>;
