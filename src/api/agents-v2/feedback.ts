import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { AGENTS_V2_ERRORS, invalidField } from './errors.ts';
import { authorizeOwner } from './access.ts';
import type { SessionReader } from './read-session.ts';

const route = routesOf('Agent sessions');

const feedback = z
  .strictObject({
    success: z.boolean().describe('whether it did what it should'),
    message: z.string().max(10_000).nullish(),
  })
  .meta({ id: 'Feedback' });

const body = json(feedback, { success: false, message: 'Order 17 is not late.' });

/** The owner's feedback on a session or an event. It replaces earlier feedback on the same session or event. */
export function feedbackRoutes({ catalog }: ApiContext, reader: SessionReader): Route[] {
  return [
    route('post', '/api/v2/sessions/:id/feedback', {
      id: 'submitSessionFeedback',
      stores: true,
      summary: 'Say whether a session did what it should',
      description: 'Only for its owner. Replaces earlier feedback.',
      body,
      handler: async ({ params, body: { success, message = null }, caller }) => {
        const { id } = await authorizeOwner(catalog, params.id, caller);
        await catalog.sessionFeedback.put({ sessionId: id }, { isSuccess: success, message }, now());
      },
    }),
    route('put', '/api/v2/sessions/:id/events/:event_index/feedback', {
      id: 'submitEventFeedback',
      stores: true,
      summary: 'Say whether an event of a session is as it should be',
      description: 'Only for the owner of the session. Replaces earlier feedback on the event.',
      body,
      handler: async ({ params, body: { success, message = null }, caller }) => {
        const event = indexOf(params.event_index);
        const session = await authorizeOwner(catalog, params.id, caller);
        const { view } = await reader.read(session);
        if (event < 0 || event >= view.count) {
          throw new ApiError(
            AGENTS_V2_ERRORS.event_not_found,
            `the session has ${view.count} events, from 0: it has no event ${event}`,
          );
        }
        await catalog.sessionFeedback.put({ sessionId: session.id, event }, { isSuccess: success, message }, now());
      },
    }),
  ];
}

/** @throws ApiError `invalid_request` */
function indexOf(text: string): number {
  if (/^-?\d{1,9}$/.test(text)) return Number(text);
  throw invalidField('event_index', 'must be an integer');
}

function now(): string {
  return new Date().toISOString();
}
