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
      /** The following columns are used for webhooks of the Agents API v2 only. */
      description: Generated<string | null>;
      disabled: Generated<number>;
      updated_at: string;
      /** The last attempt at a delivery. */
      last_attempt_at: Generated<string | null>;
      last_error: Generated<string | null>;
      last_success_at: Generated<string | null>;
      /** The number of failed attempts since the last success, and the time of the first of them. */
      failures: Generated<number>;
      failing_since: Generated<string | null>;
    };
    /** The events to deliver to webhooks; delivered and abandoned ones remain for a few days. */
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
      /** The HTTP status of the last attempt; null if there was no response. */
      response_status: Generated<number | null>;
      error: Generated<string | null>;
    };
    /**
     * The pending deliveries of one session to one webhook, which the worker with the lane's lease sends one after the
     * other.
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

/** The API with which a webhook was registered, which determines its events and their format. */
export type WebhookFace = 'sessions' | 'agents-v2';

export type WebhookRow = Selectable<Tables['webhooks']>;
export type DeliveryRow = Selectable<Tables['deliveries']>;
