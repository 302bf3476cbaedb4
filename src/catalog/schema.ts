import type { Generated, Insertable, Selectable } from 'kysely';
import type { Role } from '../auth/rights.ts';

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
  idempotency: IdempotencyTable;
  api_keys: ApiKeysTable;
}

/** Agent specs by their content; never changed. */
interface SpecsTable {
  hash: string;
  spec: string;
}

/** The newest version of each agent. */
interface AgentsTable {
  name: string;
  version: number;
  spec_hash: string;
  created_at: string;
  updated_at: string;
}

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
  title: string | null;
  subject_id: string;
  subject_type: string;
  subject_slug: string;
  metadata: string | null;
  closed: Generated<number>;
  created_at: string;
  updated_at: string;
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

/** What a request with this key, or with this body, has created. */
interface IdempotencyTable {
  scope: string;
  key: string;
  resource_id: string;
  body_hash: string;
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

export type SessionRow = Selectable<SessionsTable>;
export type NewSessionRow = Insertable<SessionsTable>;
export type TurnRow = Selectable<TurnsTable>;
export type AgentRow = Selectable<AgentsTable>;
export type KeyRow = Selectable<ApiKeysTable>;
export type NewKeyRow = Insertable<ApiKeysTable>;
