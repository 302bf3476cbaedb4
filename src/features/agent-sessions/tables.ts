import type { Generated } from 'kysely';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The sessions that are readable without a key. */
    shared_sessions: {
      session_id: string;
      shared_at: string;
    };
    /** The latest feedback of owners on their sessions and on single events. */
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
     * The data of the Agents API v2 for a version of an agent, beside its spec. Versions that were stored in other ways
     * have no row here.
     */
    agent_definitions: {
      agent_name: string;
      version: number;
      /** JSON, encrypted: the definition, which refers to skills and environments by name. */
      definition: string;
      /** Encrypted. A column of its own, since lists are searched by it. */
      description: string;
      /** The reason for the change; encrypted. */
      message: string | null;
      /** The slug of the author. */
      created_by: string;
      /** The earlier version that this one restores. */
      restored_from: number | null;
    };
    /** The skills and environments to which agents of the Agents API v2 refer by name. */
    agent_parts: {
      type: AgentPartType;
      name: string;
      /** The kind of an environment. */
      kind: string | null;
      /** Encrypted. A column of its own, since lists are searched by it. */
      description: string;
      /** JSON, encrypted. */
      definition: string;
      created_at: string;
      updated_at: string;
    };
    /** The first messages of a session of the Agents API v2, until its first turn is started. */
    session_inputs: {
      session_id: string;
      /** Counts the requests with messages. */
      number: number;
      /**
       * The id of the request with these messages, by which a repetition is recognized; null for the request that
       * created the session.
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
      /** The final message of the last ended turn. */
      last_answer: string | null;
    };
  }
  interface SessionRequestsTable {
    /**
     * JSON, encrypted: the resolved request (see `src/api/agents-v2/stored-request.ts`); null for a delegate's session.
     */
    request: string | null;
    /** The name by which the agent was requested; null if it was defined in the request. */
    agent: string | null;
    agent_revision: number | null;
    group_id: string | null;
    parent_session_id: string | null;
    /** The beginning of its first message, encrypted, for lists; null if it was created without one. */
    first_message: Generated<string | null>;
    /** The schedule that created the session; null if a request did. */
    schedule_id: Generated<string | null>;
    /** JSON: the roles of the creator, with which the first turn is started. */
    roles: string;
    /** 0: the session needs no slot, since it is the delegate of a session that needs none. */
    takes_slot: Generated<number>;
  }
}

export type AgentPartType = 'skill' | 'environment';
