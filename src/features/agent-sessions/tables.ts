import type { Generated } from 'kysely';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The sessions that are readable without a key. */
    shared_sessions: {
      session_id: string;
      shared_at: string;
    };
    /** What the owners of sessions think of them; the latest counts. */
    session_feedback: {
      session_id: string;
      /** The position of an event; -1: the session as a whole. */
      place: number;
      /** 0 or 1. */
      success: number;
      /** Encrypted. */
      message: string | null;
      given_at: string;
    };
    /**
     * What the Agents API v2 knows of a version of an agent beside its spec. Versions that were stored by other ways
     * have no such row.
     */
    agent_definitions: {
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
    };
    /** What the agents of the Agents API v2 are made of: skills and environments, by their names. */
    agent_parts: {
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
    };
    /** The messages with which a session of the Agents API v2 begins, until its first turn is started. */
    session_inputs: {
      session_id: string;
      /** Counts the requests that brought them. */
      number: number;
      /**
       * Names the request that brought them, so that a repetition is recognized; null for the one that created the
       * session.
       */
      request_id: string | null;
      /** JSON, encrypted: a list of `InputItem`, with their files. Null once the first turn has them. */
      input: string | null;
    };
    /** The texts of a session by which lists are searched; each the first `LISTED_CHARACTERS` characters, encrypted. */
    session_texts: {
      session_id: string;
      /** The first message of the first turn. */
      first_message: string | null;
      /** The answer of the last turn that has ended. */
      last_answer: string | null;
    };
  }
  interface SessionRequestsTable {
    /**
     * JSON, encrypted: the resolved request, as `src/api/agents-v2/stored-request.ts` has it; null if an agent made it.
     */
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
    /** JSON: the roles of its creator, with which its first turn is started. */
    roles: string;
    /** 0: it needs no slot, since an agent of a session that needs none has created it. */
    takes_slot: Generated<number>;
  }
}

export type AgentPartType = 'skill' | 'environment';
