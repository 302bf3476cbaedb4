import type { Generated, Selectable } from 'kysely';
import type { ActionEventType, ActionStatus } from '../../catalog/outbox.ts';
import type { Tables } from '../../catalog/schema.ts';
import type { ActionKind } from '../../core/actions.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /**
     * Answers to calls that are pending on an ended turn, before all of them are answered and the next turn starts.
     * They end with any turn that follows.
     */
    kept_answers: {
      turn_id: string;
      thread_id: string;
      tool_call_id: string;
      session_id: string;
      /** JSON, encrypted: a `StoredAnswer`. */
      answer: string;
    };
    /** The index of what waits or has waited for a person or a client. The logs of the turns are authoritative. */
    actions: {
      id: string;
      session_id: string;
      /** The turn on which it is pending. */
      turn_id: string;
      /** Identifies the action in its turn: the `callKey` of the pending call, or the key of a sign-in or budget. */
      key: string;
      thread_id: string;
      /** Null if the action is not about a call. */
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
    };
    /** The groups that may decide an action, or are excluded: see `src/auth/rights.ts`. With the columns for lists. */
    action_audience: {
      action_id: string;
      audience: string;
      /** 0 while the action is pending. */
      settled: number;
      /** Empty for a draft without a name. */
      agent_name: string;
      requested_at: string;
    };
    /** The changes of actions, in the order of their commits. */
    action_events: {
      sequence: number;
      action_id: string;
      type: ActionEventType;
      /** The state of the action after the change. */
      status: ActionStatus;
      decisions: number;
    };
  }
  interface TurnsTable {
    /** How the turn's input answers the pending calls of the previous turn; null if it answers none. */
    answers: Generated<string | null>;
  }
}

export type ActionRow = Selectable<Tables['actions']>;
