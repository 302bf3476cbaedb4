import type { Webhook } from '../../catalog/webhooks.ts';
import { isId } from '../../core/ids.ts';
import { newId } from '../../engine/new-id.ts';
import { newSecret, rotatedNow } from '../../webhooks/signature.ts';
import { WebhookSender } from '../../webhooks/webhook-sender.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { json, route, type Route } from '../http/route.ts';
import { exampleSecret, exampleWebhook } from './examples.ts';
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

const requires = 'manageWebhooks';
const tag = 'Agent webhooks';
const withSecret = json(webhookWithSecret, { ...exampleWebhook, secret: exampleSecret });

/** `/api/v2/webhooks`: for admins. */
export function webhookRoutes({ catalog, allowPrivateUrls }: ApiContext): Route[] {
  return [
    route(
      'post',
      '/api/v2/webhooks',
      {
        id: 'createWebhook',
        requires,
        tag,
        summary: 'Register a URL that is told when the status of a session changes',
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
        answer: withSecret,
        errors: ['too_many_webhooks'],
      },
      async ({ body: { url, enabled_events: events, description, disabled } }) => {
        const id = newId('whk');
        const secret = newSecret();
        const webhook = {
          id,
          face: 'agents-v2' as const,
          url,
          events: [...new Set(events)],
          agent_name: null,
          secret,
          description,
          disabled: Number(disabled),
          created_at: new Date().toISOString(),
        };
        if (!(await catalog.webhooks.insert(webhook, MAX_WEBHOOKS))) {
          throw new ApiError('too_many_webhooks', `there are ${MAX_WEBHOOKS} webhooks, which is the limit: delete one`);
        }
        return { ...webhookToRecord(await find(id)), secret };
      },
    ),
    route(
      'get',
      '/api/v2/webhooks',
      {
        id: 'listWebhooks',
        requires,
        tag,
        summary: 'The webhooks, newest first',
        query: webhooksQuery,
        answer: json(webhookPage, { items: [exampleWebhook], total: 1, page: 1 }),
      },
      async ({ query: { page, size, sort } }) => {
        const all = await catalog.webhooks.list('agents-v2');
        const sorted = sort[0] === 'created_at' ? all : all.toReversed();
        const items = sorted.slice((page - 1) * size, page * size).map(webhookToRecord);
        return { items, total: all.length, page };
      },
    ),
    route(
      'get',
      '/api/v2/webhooks/events',
      {
        id: 'listWebhookEvents',
        requires,
        tag,
        summary: 'The types of events that webhooks can be sent',
        answer: json(eventTypes, EVENTS),
      },
      () => Promise.resolve(EVENTS),
    ),
    route(
      'get',
      '/api/v2/webhooks/:webhook_id',
      {
        id: 'getWebhook',
        requires,
        tag,
        summary: 'A webhook, with the state of its deliveries',
        answer: json(webhookRecord, exampleWebhook),
        errors: ['webhook_not_found'],
      },
      async ({ params }) => webhookToRecord(await find(params.webhook_id)),
    ),
    route(
      'patch',
      '/api/v2/webhooks/:webhook_id',
      {
        id: 'updateWebhook',
        requires,
        tag,
        summary: 'Change a webhook',
        description: 'Only what is given changes. A webhook that is enabled again begins without failures.',
        body: json(updateWebhookBody, { disabled: false }),
        answer: json(webhookRecord, exampleWebhook),
        errors: ['webhook_not_found'],
      },
      async ({ params: { webhook_id: id }, body: { enabled_events: events, ...change } }) => {
        await find(id);
        const now = new Date().toISOString();
        await catalog.webhooks.update(id, { ...change, events: events && [...new Set(events)] }, now);
        return webhookToRecord(await find(id));
      },
    ),
    route(
      'delete',
      '/api/v2/webhooks/:webhook_id',
      {
        id: 'deleteWebhook',
        requires,
        tag,
        summary: 'Delete a webhook with its deliveries',
        errors: ['webhook_not_found'],
      },
      async ({ params: { webhook_id: id } }) => {
        if (!isId(id) || !(await catalog.webhooks.delete('agents-v2', id))) throw webhookNotFound(id);
      },
    ),
    route(
      'post',
      '/api/v2/webhooks/:webhook_id/rotate',
      {
        id: 'rotateWebhookSecret',
        requires,
        tag,
        summary: 'Replace the secret of a webhook',
        description:
          'The new secret is shown only here, and signs at once. For 24 hours an attempt that fails is repeated with a ' +
          'signature of the old one.',
        answer: withSecret,
        errors: ['webhook_not_found'],
      },
      async ({ params: { webhook_id: id } }) => {
        await find(id);
        const secret = newSecret();
        if (!(await catalog.webhooks.rotate(id, { secret, ...rotatedNow() }))) throw webhookNotFound(id);
        return { ...webhookToRecord(await find(id)), secret };
      },
    ),
    route(
      'post',
      '/api/v2/webhooks/:webhook_id/ping',
      {
        id: 'pingWebhook',
        requires,
        tag,
        summary: 'Send a webhook a message of the type `ping`, and wait for its answer',
        description: 'Also to one that is disabled. The outcome does not count as that of a delivery.',
        answer: json(pingResult, { response_status: 200 }),
        errors: ['webhook_not_found', 'webhook_unreachable'],
      },
      async ({ params: { webhook_id: id } }) => ping(await find(id)),
    ),
  ];

  async function find(id: string): Promise<Webhook<'agents-v2'>> {
    const webhook = isId(id) ? await catalog.webhooks.find('agents-v2', id) : undefined;
    if (!webhook) throw webhookNotFound(id);
    return webhook;
  }

  async function ping(webhook: Webhook): Promise<{ response_status: number }> {
    const id = messageId(newId('dlv'));
    const message: WebhookMessage = { type: 'ping', id, created_at: new Date().toISOString(), data: {} };
    const sender = new WebhookSender(allowPrivateUrls);
    try {
      const outgoing = { id, body: JSON.stringify(message), attempts: 0 };
      const { responseStatus, error } = await sender.send(webhook, outgoing, { headersOf: signatureHeaders });
      if (responseStatus === null) throw new ApiError('webhook_unreachable', `the webhook ${error}`);
      return { response_status: responseStatus };
    } finally {
      await sender.close();
    }
  }
}

function webhookNotFound(id: string): ApiError {
  return new ApiError('webhook_not_found', `there is no webhook ${JSON.stringify(id)}`);
}
