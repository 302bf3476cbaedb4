import type { Generated, Selectable } from 'kysely';
import type { ActionStatus, OutboxEventType } from '../../catalog/outbox.ts';
import type { Tables } from '../../catalog/schema.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    webhooks: {
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
    };
    /** An event to deliver to a webhook, or one that was delivered or given up a few days ago. */
    deliveries: {
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
    };
    /**
     * The pending deliveries of one session to one webhook, which are sent one after the other by the worker that holds
     * the lane's lease.
     */
    delivery_lanes: {
      webhook_id: string;
      session_id: string;
      /** The sequence of the newest delivery. */
      last_sequence: number;
      /** When a worker may take the lane: the time of the next attempt, or the end of the current lease. */
      due_at: string;
      lease: Generated<string | null>;
    };
  }
}

/** The API with which a webhook was registered, which decides what it is sent. */
export type WebhookFace = 'sessions' | 'agents-v2';

export type WebhookRow = Selectable<Tables['webhooks']>;
export type DeliveryRow = Selectable<Tables['deliveries']>;
