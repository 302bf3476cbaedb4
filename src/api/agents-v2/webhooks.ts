import type { Webhook } from '../../features/webhooks/webhook-rows.ts';
import { newId } from '../../engine/new-id.ts';
import { WebhookSender } from '../../features/webhooks/webhook-sender.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { exampleSecret, FaceWebhooks } from '../http/face-webhooks.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { orderOf, rangeOf } from './catalog-queries.ts';
import { AGENTS_V2_ERRORS } from './errors.ts';
import { exampleWebhook } from './examples.ts';
import { messageId } from './webhook-messages.ts';
import { signatureHeaders } from './webhook-signature.ts';
import {
  createWebhookBody,
  eventTypes,
  pingResult,
  STATUS_UPDATED,
  updateWebhookBody,
  webhookMessage,
  webhookPage,
  webhookRecord,
  webhooksQuery,
  webhookToRecord,
  webhookWithSecret,
  type WebhookMessage,
} from './wire/webhooks.ts';

const MAX_WEBHOOKS = 10;

const EVENTS = [{ type: STATUS_UPDATED, description: 'the status of a session has changed' }];

const route = routesOf('Agent webhooks', { requires: 'manageWebhooks' });
const withSecret = json(webhookWithSecret, { ...exampleWebhook, secret: exampleSecret });

/** `/api/v2/webhooks`: for admins. */
export function webhookRoutes({ catalog, allowPrivateUrls }: ApiContext): Route[] {
  const webhooks = new FaceWebhooks(catalog, { face: 'agents-v2', limit: MAX_WEBHOOKS });
  return [
    route('post', '/api/v2/webhooks', {
      id: 'createWebhook',
      summary: 'Register a URL that is notified when the status of a session changes',
      description:
        'Each change is sent as a `POST` with the JSON of `WebhookMessage`. `X-H-Webhook-Signature` is `sha256=` and ' +
        'the hexadecimal HMAC-SHA256 of `<X-H-Webhook-Timestamp>.<body>`. The secret is shown only here.',
      body: json(createWebhookBody, {
        url: exampleWebhook.url,
        enabled_events: ['*'],
        description: null,
        disabled: false,
      }),
      schemas: { WebhookMessage: webhookMessage },
      status: 201,
      response: withSecret,
      errors: ['too_many_webhooks'],
      handler: async ({ body: { url, enabled_events: events, description, disabled } }) => {
        const { id, secret } = await webhooks.register({
          url,
          events: [...new Set(events)],
          agent_name: null,
          description,
          disabled: Number(disabled),
        });
        return { ...webhookToRecord(await webhooks.find(id)), secret };
      },
    }),
    route('get', '/api/v2/webhooks', {
      id: 'listWebhooks',
      summary: 'The webhooks, newest first',
      query: webhooksQuery,
      response: json(webhookPage, { items: [exampleWebhook], total: 1, page: 1 }),
      handler: async ({ query }) => {
        const all = await catalog.webhooks.list('agents-v2');
        const { offset, limit } = rangeOf(query);
        const sorted = orderOf(query) === 'asc' ? all : all.toReversed();
        const items = sorted.slice(offset, offset + limit).map(webhookToRecord);
        return { items, total: all.length, page: query.page };
      },
    }),
    route('get', '/api/v2/webhooks/events', {
      id: 'listWebhookEvents',
      summary: 'The types of events that webhooks can be sent',
      response: json(eventTypes, EVENTS),
      handler: () => Promise.resolve(EVENTS),
    }),
    route('get', '/api/v2/webhooks/:webhook_id', {
      id: 'getWebhook',
      summary: 'A webhook, with the state of its deliveries',
      response: json(webhookRecord, exampleWebhook),
      handler: async ({ params }) => webhookToRecord(await webhooks.find(params.webhook_id)),
    }),
    route('patch', '/api/v2/webhooks/:webhook_id', {
      id: 'updateWebhook',
      summary: 'Change a webhook',
      description: 'Only what is given changes. A webhook that is enabled again begins without failures.',
      body: json(updateWebhookBody, { disabled: false }),
      response: json(webhookRecord, exampleWebhook),
      handler: async ({ params: { webhook_id: id }, body: { enabled_events: events, ...change } }) => {
        await webhooks.find(id);
        const now = new Date().toISOString();
        await catalog.webhooks.update(id, { ...change, events: events && [...new Set(events)] }, now);
        return webhookToRecord(await webhooks.find(id));
      },
    }),
    route('delete', '/api/v2/webhooks/:webhook_id', {
      id: 'deleteWebhook',
      summary: 'Delete a webhook with its deliveries',
      handler: async ({ params }) => webhooks.delete(params.webhook_id),
    }),
    route('post', '/api/v2/webhooks/:webhook_id/rotate', {
      id: 'rotateWebhookSecret',
      summary: 'Replace the secret of a webhook',
      description:
        'The new secret is shown only here, and signs at once. For 24 hours an attempt that fails is repeated with a ' +
        'signature of the old one.',
      response: withSecret,
      handler: async ({ params: { webhook_id: id } }) => {
        const { secret } = await webhooks.rotate(id);
        return { ...webhookToRecord(await webhooks.find(id)), secret };
      },
    }),
    route('post', '/api/v2/webhooks/:webhook_id/ping', {
      id: 'pingWebhook',
      summary: 'Send a webhook a message of the type `ping`, and wait for its answer',
      description: 'Also to one that is disabled. The outcome does not count as that of a delivery.',
      response: json(pingResult, { response_status: 200 }),
      errors: ['webhook_unreachable'],
      handler: async ({ params: { webhook_id: id } }) => ping(await webhooks.find(id)),
    }),
  ];

  async function ping(webhook: Webhook): Promise<{ response_status: number }> {
    const id = messageId(newId('dlv'));
    const message: WebhookMessage = { type: 'ping', id, created_at: new Date().toISOString(), data: {} };
    const sender = new WebhookSender(allowPrivateUrls);
    try {
      const outgoing = { id, body: JSON.stringify(message), attempts: 0 };
      const { responseStatus, error } = await sender.send(webhook, outgoing, { headersOf: signatureHeaders });
      if (responseStatus === null) throw new ApiError(AGENTS_V2_ERRORS.webhook_unreachable, `the webhook ${error}`);
      return { response_status: responseStatus };
    } finally {
      await sender.close();
    }
  }
}
