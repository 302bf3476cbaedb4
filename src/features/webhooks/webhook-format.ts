import type { DeliveryRow } from './tables.ts';
import type { Webhook } from './webhook-rows.ts';

/** A message as it is sent in one attempt. */
export interface Outgoing {
  /** Of the delivery, the same in every attempt. */
  id: string;
  /** The time of the attempt: milliseconds since 1970. */
  timestamp: number;
  body: string;
  /** How many attempts have failed before. */
  attempts: number;
}

/** What the webhooks of one API are sent. */
export interface WebhookFormat {
  /**
   * Makes the body of a delivery; undefined if what it is about no longer exists, `nothing` if there is nothing to tell.
   */
  messageOf: (delivery: DeliveryRow) => Promise<object | 'nothing' | undefined>;
  /** The headers that sign a message. `secrets` are those that are valid, the newest first. */
  headersOf: (message: Outgoing, secrets: [string, ...string[]]) => Record<string, string>;
  /** Called after each attempt. */
  attempted?: (webhook: Webhook, attempt: { at: string; error: string | null }) => Promise<void>;
}
