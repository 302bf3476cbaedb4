import type { DeliveryRow } from './tables.ts';
import type { Webhook } from './webhook-rows.ts';

/** A message in the form in which one attempt sends it. */
export interface Outgoing {
  /** The id of the delivery, the same in every attempt. */
  id: string;
  /** The time of the attempt: milliseconds since 1970. */
  timestamp: number;
  body: string;
  /** The number of earlier, failed attempts. */
  attempts: number;
}

/** The format of messages to the webhooks of one API. */
export interface WebhookFormat {
  /**
   * Makes the body of a delivery; undefined if session, turn or action was deleted, `nothing` if none is to be sent.
   */
  messageOf: (delivery: DeliveryRow) => Promise<object | 'nothing' | undefined>;
  /** The headers that sign a message. `secrets`: the valid ones, newest first. */
  headersOf: (message: Outgoing, secrets: [string, ...string[]]) => Record<string, string>;
  /** Called after each attempt. */
  attempted?: (webhook: Webhook, attempt: { at: string; error: string | null }) => Promise<void>;
}
