import { z } from 'zod';
import type { Webhook } from '../../../features/webhooks/webhook-rows.ts';
import { webhookUrl } from '../../../features/webhooks/webhook-url.ts';
import { rowToWire } from '../../http/wire-fields.ts';
import { integerQuery, numberedPageOf, repeatedQuery } from './query.ts';
import { SESSION_STATUSES } from './session.ts';

/** Webhooks and their messages. */

const MAX_URL_LENGTH = 2_048;
const MAX_DESCRIPTION_LENGTH = 1_000;
const MAX_PAGE_SIZE = 1_000;

export const STATUS_UPDATED = 'session.status_updated';

/** `*` stands for `session.status_updated`, too. */
const EVENT_TYPES = ['*', STATUS_UPDATED] as const;

const enabledEvents = z.array(z.enum(EVENT_TYPES)).min(1).max(EVENT_TYPES.length);
const description = z.string().max(MAX_DESCRIPTION_LENGTH).nullable();

export const createWebhookBody = z.strictObject({
  url: webhookUrl(MAX_URL_LENGTH),
  enabled_events: enabledEvents.default(['*']),
  description: description.default(null),
  disabled: z.boolean().default(false),
});

export const updateWebhookBody = z.strictObject({
  url: webhookUrl(MAX_URL_LENGTH).optional(),
  enabled_events: enabledEvents.optional(),
  description: description.optional(),
  disabled: z.boolean().optional().describe('true: nothing is delivered; false: the failures are forgotten'),
});

export const webhooksQuery = z.object({
  page: integerQuery({ min: 1 }).default(1),
  size: integerQuery({ min: 1, max: MAX_PAGE_SIZE }).default(10),
  sort: repeatedQuery(z.enum(['created_at', '-created_at'])).default(['-created_at']),
});

export const eventTypes = z.array(z.object({ type: z.string(), description: z.string() }));

const time = z.iso.datetime();

export const webhookRecord = z
  .object({
    id: z.string(),
    url: z.string(),
    enabled_events: z.array(z.string()),
    description: z.string().nullable(),
    disabled: z.boolean(),
    last_delivery_status: z
      .enum(['succeeded', 'failed'])
      .nullable()
      .describe('the outcome of the last attempt at a delivery; null before the first one'),
    last_delivery_error: z.string().nullable(),
    last_delivery_at: time.nullable(),
    last_success_at: time.nullable(),
    consecutive_failures: z.int().describe('the attempts since the last success; too many of them disable the webhook'),
    created_at: time,
    updated_at: time,
  })
  .meta({ id: 'WebhookRecord' });

export const webhookWithSecret = webhookRecord
  .extend({ secret: z.string().describe('signs the deliveries; it is not shown again') })
  .meta({ id: 'WebhookWithSecret' });

export const webhookPage = numberedPageOf(webhookRecord).meta({ id: 'WebhookPage' });

export const pingResult = z.object({ response_status: z.int() }).meta({ id: 'WebhookPingResult' });

const status = z.enum(SESSION_STATUSES);
const message = { id: z.string().describe('the same in every attempt'), created_at: time };

/** The body of a delivery. */
export const webhookMessage = z
  .discriminatedUnion('type', [
    z.object({
      type: z.literal(STATUS_UPDATED),
      ...message,
      data: z.object({ session_id: z.guid(), status, previous_status: status }),
    }),
    z.object({ type: z.literal('ping'), ...message, data: z.object({}) }),
  ])
  .meta({ id: 'WebhookMessage' });

export type WebhookRecord = z.infer<typeof webhookRecord>;
export type WebhookMessage = z.infer<typeof webhookMessage>;

export function webhookToRecord(webhook: Webhook<'agents-v2'>): WebhookRecord {
  const { last_error: error, last_attempt_at: attemptAt } = webhook;
  return rowToWire(webhookRecord, {
    ...webhook,
    enabled_events: webhook.events,
    disabled: webhook.disabled === 1,
    last_delivery_status: attemptAt === null ? null : error === null ? 'succeeded' : 'failed',
    last_delivery_error: error,
    last_delivery_at: attemptAt,
    consecutive_failures: webhook.failures,
  });
}
