import { z } from 'zod';
import { isId } from '../../core/ids.ts';
import { newId } from '../../engine/new-id.ts';
import { newSecret, rotatedNow } from '../../webhooks/signature.ts';
import type { Webhook } from '../../catalog/webhooks.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { decodePageToken, invalidPageToken, pageQuery, pagination, pageOf } from '../http/pagination.ts';
import { json, route, type Route } from '../http/route.ts';
import { exampleDelivery, examplePage, exampleSecret, exampleWebhook } from './examples.ts';
import { dataOf } from './wire/resources.ts';
import {
  createWebhookBody,
  deliveryResource,
  deliveryToResource,
  webhookMessage,
  webhookResource,
  webhookToResource,
  webhookWithSecret,
} from './wire/webhooks.ts';

/** Each event is checked against all webhooks, and each webhook has connections of its own. */
const MAX_WEBHOOKS = 50;

const LIMIT = 25;
const deliveriesQuery = pageQuery({ defaultLimit: LIMIT, maxLimit: 100 });
const deliveryPosition = z.object({ deliveries_of: z.string(), before: z.int() });

const requires = 'manageWebhooks';
const tag = 'Webhooks';
const withSecret = json(dataOf(webhookWithSecret), { data: { ...exampleWebhook, secret: exampleSecret } });

/** `/v1/webhooks`: for admins. */
export function webhookRoutes({ catalog }: ApiContext): Route[] {
  return [
    route(
      'post',
      '/v1/webhooks',
      {
        id: 'createWebhook',
        requires,
        tag,
        summary: 'Register a URL that is told of events',
        description:
          'Each event is sent as a `POST` with the JSON of `WebhookMessage`, signed as in ' +
          '[Standard Webhooks](https://www.standardwebhooks.com); see the guide to webhooks.',
        body: json(createWebhookBody, { url: exampleWebhook.url, events: exampleWebhook.events }),
        schemas: { WebhookMessage: webhookMessage },
        status: 201,
        answer: withSecret,
        errors: ['too_many_webhooks'],
      },
      async ({ body: { url, events, agent_name: agentName } }) => {
        const webhook = {
          id: newId('whk'),
          face: 'sessions' as const,
          url,
          events: [...new Set(events)],
          agent_name: agentName ?? null,
          secret: newSecret(),
          created_at: new Date().toISOString(),
        };
        if (!(await catalog.webhooks.insert(webhook, MAX_WEBHOOKS))) {
          throw new ApiError('too_many_webhooks', `there are ${MAX_WEBHOOKS} webhooks, which is the limit: delete one`);
        }
        return { data: { ...webhookToResource(webhook), secret: webhook.secret } };
      },
    ),
    route(
      'get',
      '/v1/webhooks',
      {
        id: 'listWebhooks',
        requires,
        tag,
        summary: 'All webhooks, oldest first',
        answer: json(z.object({ data: z.array(webhookResource) }), { data: [exampleWebhook] }),
      },
      async () => ({ data: (await catalog.webhooks.list('sessions')).map(webhookToResource) }),
    ),
    route(
      'delete',
      '/v1/webhooks/:webhook_id',
      {
        id: 'deleteWebhook',
        requires,
        tag,
        summary: 'Delete a webhook with its deliveries',
        errors: ['webhook_not_found'],
      },
      async ({ params: { webhook_id: id } }) => {
        if (!isId(id) || !(await catalog.webhooks.delete('sessions', id))) throw webhookNotFound(id);
      },
    ),
    route(
      'post',
      '/v1/webhooks/:webhook_id/rotate',
      {
        id: 'rotateWebhookSecret',
        requires,
        tag,
        summary: 'Replace the secret of a webhook',
        description: 'For 24 hours deliveries are signed with both secrets.',
        answer: withSecret,
        errors: ['webhook_not_found'],
      },
      async ({ params: { webhook_id: id } }) => {
        const webhook = await find(id);
        const secret = newSecret();
        if (!(await catalog.webhooks.rotate(id, { secret, ...rotatedNow() }))) throw webhookNotFound(id);
        return { data: { ...webhookToResource(webhook), secret } };
      },
    ),
    route(
      'post',
      '/v1/webhooks/:webhook_id/ping',
      {
        id: 'pingWebhook',
        requires,
        tag,
        summary: 'Send a webhook a message of the type `ping`',
        description: 'It is sent like an event; the list of deliveries has the outcome.',
        answer: json(dataOf(deliveryResource), { data: exampleDelivery }),
        errors: ['webhook_not_found'],
      },
      async ({ params: { webhook_id: id } }) => {
        await find(id);
        const delivery = await catalog.deliveries.get(await catalog.outbox.ping(id));
        if (!delivery) throw webhookNotFound(id);
        return { data: deliveryToResource(delivery) };
      },
    ),
    route(
      'get',
      '/v1/webhooks/:webhook_id/deliveries',
      {
        id: 'listWebhookDeliveries',
        requires,
        tag,
        summary: 'The deliveries of a webhook in the last days, newest first',
        query: deliveriesQuery,
        answer: json(pageOf(deliveryResource), { data: [exampleDelivery], pagination: examplePage(LIMIT) }),
        errors: ['invalid_page_token', 'webhook_not_found'],
      },
      async ({ params: { webhook_id: id }, query: { limit, page_token: token } }) => {
        await find(id);
        const position = token === undefined ? undefined : decodePageToken(deliveryPosition, token);
        if (position && position.deliveries_of !== id) throw invalidPageToken();
        const found = await catalog.deliveries.list(id, position?.before, limit + 1);
        const page = found.slice(0, limit);
        const next = found.length > limit ? { deliveries_of: id, before: page.at(-1)?.sequence ?? 0 } : undefined;
        return { data: page.map(deliveryToResource), pagination: pagination(limit, next) };
      },
    ),
  ];

  async function find(id: string): Promise<Webhook<'sessions'>> {
    const webhook = isId(id) ? await catalog.webhooks.find('sessions', id) : undefined;
    if (!webhook) throw webhookNotFound(id);
    return webhook;
  }
}

function webhookNotFound(id: string): ApiError {
  return new ApiError('webhook_not_found', `there is no webhook ${JSON.stringify(id)}`);
}
