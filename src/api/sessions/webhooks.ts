import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { exampleSecret, FaceWebhooks, webhookNotFound } from '../http/face-webhooks.ts';
import { pageOf, pageOfRows, pageQuery, positionOf } from '../http/pagination.ts';
import { dataOf, json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { exampleDelivery, exampleWebhook } from './examples.ts';
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

const route = routesOf('Webhooks', { requires: 'manageWebhooks' });
const withSecret = dataOf(webhookWithSecret, { ...exampleWebhook, secret: exampleSecret });

/** `/v1/webhooks`: for admins. */
export function webhookRoutes({ catalog }: ApiContext): Route[] {
  const webhooks = new FaceWebhooks(catalog, { face: 'sessions', limit: MAX_WEBHOOKS });
  return [
    route('post', '/v1/webhooks', {
      id: 'createWebhook',
      summary: 'Register a URL that is notified of events',
      description:
        'Each event is sent as a `POST` with the JSON of `WebhookMessage`, signed as in ' +
        '[Standard Webhooks](https://www.standardwebhooks.com); see the guide to webhooks.',
      body: json(createWebhookBody, { url: exampleWebhook.url, events: exampleWebhook.events }),
      schemas: { WebhookMessage: webhookMessage },
      status: 201,
      response: withSecret,
      errors: ['too_many_webhooks'],
      handler: async ({ body: { url, events, agent_name: agentName } }) => {
        const webhook = await webhooks.register({ url, events: [...new Set(events)], agent_name: agentName ?? null });
        return { data: { ...webhookToResource(webhook), secret: webhook.secret } };
      },
    }),
    route('get', '/v1/webhooks', {
      id: 'listWebhooks',
      summary: 'All webhooks, oldest first',
      response: dataOf(z.array(webhookResource), [exampleWebhook]),
      handler: async () => ({ data: (await catalog.webhooks.list('sessions')).map(webhookToResource) }),
    }),
    route('delete', '/v1/webhooks/:webhook_id', {
      id: 'deleteWebhook',
      summary: 'Delete a webhook with its deliveries',
      handler: async ({ params }) => webhooks.delete(params.webhook_id),
    }),
    route('post', '/v1/webhooks/:webhook_id/rotate', {
      id: 'rotateWebhookSecret',
      summary: 'Replace the secret of a webhook',
      description: 'For 24 hours deliveries are signed with both secrets.',
      response: withSecret,
      handler: async ({ params: { webhook_id: id } }) => {
        const webhook = await webhooks.rotate(id);
        return { data: { ...webhookToResource(webhook), secret: webhook.secret } };
      },
    }),
    route('post', '/v1/webhooks/:webhook_id/ping', {
      id: 'pingWebhook',
      summary: 'Send a webhook a message of the type `ping`',
      description: 'It is sent like an event; the list of deliveries has the outcome.',
      response: dataOf(deliveryResource, exampleDelivery),
      handler: async ({ params: { webhook_id: id } }) => {
        await webhooks.find(id);
        const delivery = await catalog.deliveries.get(await catalog.deliveries.ping(id));
        if (!delivery) throw webhookNotFound(id);
        return { data: deliveryToResource(delivery) };
      },
    }),
    route('get', '/v1/webhooks/:webhook_id/deliveries', {
      id: 'listWebhookDeliveries',
      summary: 'The deliveries of a webhook in the last days, newest first',
      query: deliveriesQuery,
      response: pageOf(deliveryResource, [exampleDelivery], LIMIT),
      handler: async ({ params: { webhook_id: id }, query: { limit, page_token: token } }) => {
        await webhooks.find(id);
        const position = positionOf(deliveryPosition, token, { deliveries_of: id });
        return pageOfRows(await catalog.deliveries.list(id, position?.before, limit + 1), limit, {
          toItem: deliveryToResource,
          after: ({ sequence }) => ({ deliveries_of: id, before: sequence }),
        });
      },
    }),
  ];
}
