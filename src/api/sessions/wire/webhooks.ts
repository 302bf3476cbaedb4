import { z } from 'zod';
import type { DeliveryRow } from '../../../features/webhooks/tables.ts';
import { WEBHOOK_EVENT_TYPES } from '../../../catalog/outbox.ts';
import type { Webhook } from '../../../features/webhooks/webhook-rows.ts';
import { bounded, identifier } from '../../../spec/bounds.ts';
import { webhookUrl } from '../../../features/webhooks/webhook-url.ts';
import { rowToWire } from '../../http/wire-fields.ts';
import { actionResource } from './actions.ts';
import { timestamp } from './event.ts';
import { turnResource } from './resources.ts';

/** Webhooks and their messages (`docs/webhooks.md`). */

export const createWebhookBody = z.strictObject({
  url: webhookUrl(2_000),
  events: bounded(z.array(z.enum(WEBHOOK_EVENT_TYPES)).min(1), WEBHOOK_EVENT_TYPES.length),
  agent_name: identifier.nullish().describe('only events of this agent; by default those of all agents'),
});

const fields = {
  id: z.string(),
  url: z.string(),
  events: z.array(z.enum(WEBHOOK_EVENT_TYPES)),
  agent_name: z.string().nullable(),
  created_at: timestamp,
};

export const webhookResource = z.object(fields).meta({ id: 'Webhook' });

export const webhookWithSecret = z
  .object({ ...fields, secret: z.string().describe('signs the deliveries; it is not shown again') })
  .meta({ id: 'WebhookWithSecret' });

export const deliveryResource = z
  .object({
    id: z.string().describe('the `webhook-id` of the message'),
    type: z.enum([...WEBHOOK_EVENT_TYPES, 'ping']),
    session_id: z.string().nullable(),
    turn_id: z.string().nullable(),
    status: z.enum(['pending', 'delivered', 'failed']),
    attempts: z.int(),
    created_at: timestamp,
    last_attempt_at: timestamp.nullable(),
    response_status: z.int().nullable().describe('the HTTP status of the last attempt; null if there was no answer'),
    error: z.string().nullable().describe('why the last attempt failed'),
  })
  .meta({ id: 'WebhookDelivery' });

const origin = { session_id: z.string(), turn_id: z.string(), agent_name: z.string().nullable() };
const message = { id: z.string().describe('the same in every attempt'), created_at: timestamp };
const actionData = z.object({ ...origin, action: actionResource });

/** The body of a delivery. */
export const webhookMessage = z
  .discriminatedUnion('type', [
    z.object({ ...message, type: z.literal('turn.done'), data: z.object({ ...origin, turn: turnResource }) }),
    z.object({ ...message, type: z.literal('action.created'), data: actionData }),
    z.object({ ...message, type: z.literal('action.decided'), data: actionData }),
    z.object({ ...message, type: z.literal('action.expired'), data: actionData }),
    z.object({ ...message, type: z.literal('ping'), data: z.object({}) }),
  ])
  .meta({ id: 'WebhookMessage' });

export type WebhookResource = z.infer<typeof webhookResource>;
export type DeliveryResource = z.infer<typeof deliveryResource>;
export type WebhookMessage = z.infer<typeof webhookMessage>;

export function webhookToResource(webhook: Pick<Webhook<'sessions'>, keyof WebhookResource>): WebhookResource {
  return rowToWire(webhookResource, webhook);
}

export function deliveryToResource(delivery: DeliveryRow): DeliveryResource {
  return rowToWire(deliveryResource, {
    ...delivery,
    // Webhooks of this API get no other types.
    type: deliveryResource.shape.type.parse(delivery.type),
    session_id: delivery.session_id || null,
  });
}
