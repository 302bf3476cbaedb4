import type { Generated, Insertable, Selectable } from 'kysely';
import type { Role } from '../core/subject.ts';

/**
 * The catalog's tables: one schema for SQLite and PostgreSQL, so only types that both know. Times are ISO-8601 UTC with
 * milliseconds, which sort as text; JSON is text; flags are 0 and 1.
 */
export interface Tables {
  specs: SpecsTable;
  agents: AgentsTable;
  agent_versions: AgentVersionsTable;
  sessions: SessionsTable;
  turns: TurnsTable;
  archive: ArchiveTable;
  blob_references: BlobReferencesTable;
  idempotency: IdempotencyTable;
  api_keys: ApiKeysTable;
  encryption_keys: EncryptionKeysTable;
  marks: MarksTable;
}

/** Agent specs by their content, which is never changed. */
interface SpecsTable {
  hash: string;
  spec: string;
  /** `config.retention_days` of the spec, to be searched for. */
  retention_days: number | null;
  /** When it was stored, or somebody last ceased to use it; whether anybody does is looked at later. */
  unused_since: Generated<string | null>;
}

/** The newest version of each agent that has not been deleted. */
interface AgentsTable {
  name: string;
  version: number;
  spec_hash: string;
  created_at: string;
  updated_at: string;
}

/** All versions of all agents, deleted ones too: sessions are pinned to them, and their numbers are used once. */
interface AgentVersionsTable {
  agent_name: string;
  version: number;
  spec_hash: string;
  created_at: string;
}

interface SessionsTable {
  id: string;
  type: 'session' | 'session/draft';
  agent_name: string | null;
  /** Null for drafts, which have a spec of their own. */
  agent_version: number | null;
  spec_hash: string;
  /** The roles of who has written a draft's agent, when that was; null for sessions with an agent of the registry. */
  draft_roles: Generated<string | null>;
  title: string | null;
  subject_id: string;
  subject_type: string;
  subject_slug: string;
  metadata: string | null;
  closed: Generated<number>;
  created_at: string;
  updated_at: string;
  /** When something last happened in the session; its retention counts from here. */
  active_at: string;
  /** Since when blobs may have been stored that nobody refers to; null if they were collected since the last turn. */
  unswept_since: Generated<string | null>;
  /** A deleted session does not exist any more for anybody: the row stands only until what belonged to it is removed. */
  deleted_at: Generated<string | null>;
  /** When that is to be looked after next. */
  removal_at: Generated<string | null>;
}

/**
 * The index of turns. A row without a sequence is only a request: written before the session is asked, so that a crash
 * in between leaves a trace to follow. Whether the turn exists is then for Temporal to say.
 */
interface TurnsTable {
  id: string;
  session_id: string;
  previous_turn_id: string | null;
  sequence: number | null;
  created_at: string;
  /** The archive has the entries up to this ordinal... */
  archived_through: Generated<number>;
  /** ... and no more will come. */
  archived: Generated<number>;
}

/** The logs of turns: one row per entry. */
interface ArchiveTable {
  turn_id: string;
  ordinal: number;
  record: string;
}

/** Up to when regular work is done. */
interface MarksTable {
  name: string;
  at: string;
}

/** The blobs that the archived records of a session name. */
interface BlobReferencesTable {
  session_id: string;
  blob: string;
}

/** What a request with this key, or with this body, has created. */
interface IdempotencyTable {
  scope: string;
  key: string;
  resource_id: string;
  body_hash: string;
  /** The session that was created, or in which; its keys go with it. Empty for what belongs to none. */
  session_id: string;
  /** When the request came, or when its answer was lost. */
  created_at: string;
}

/** API keys made by command. */
interface ApiKeysTable {
  id: string;
  /** SHA-256 of the key; the key itself is nowhere. */
  hash: string;
  /** Id and slug of the subject that the key stands for. It may have several keys. */
  name: string;
  role: Role;
  created_at: string;
  expires_at: string | null;
  /** To the minute. */
  last_used_at: string | null;
  revoked_at: string | null;
}

/** The keys under which something was encrypted. */
interface EncryptionKeysTable {
  id: string;
  fingerprint: string;
  created_at: string;
}

export type SessionRow = Selectable<SessionsTable>;
export type NewSessionRow = Omit<Insertable<SessionsTable>, 'active_at'>;
export type TurnRow = Selectable<TurnsTable>;
export type AgentRow = Selectable<AgentsTable>;
export type KeyRow = Selectable<ApiKeysTable>;
export type NewKeyRow = Insertable<ApiKeysTable>;
export type AgentVersionRow = Selectable<AgentVersionsTable>;
