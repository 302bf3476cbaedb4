import { z } from 'zod';
import { authorizeSession } from '../../engine/access.ts';
import { addLogContext } from '../../telemetry/log-context.ts';
import type { ApiContext } from '../http/context.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { authorizeRead } from './access.ts';
import { cancelIfOpen } from './cancel-session.ts';
import { createSession } from './create-session.ts';
import { exampleRequest, exampleSession, exampleStatus } from './examples.ts';
import { forEveryone, toResource, toStatus, type SessionReader } from './read-session.ts';
import { fromUuid } from './session-ids.ts';
import { sessionRequest, sessionResource, sessionStatus } from './wire/session.ts';

const route = routesOf('Agent sessions');

const idempotencyKey = z
  .string()
  .transform((key) => key.trim())
  .pipe(z.string().min(1).max(255))
  .optional()
  .describe('a request that repeats another one with the same key gets the same session');

const responseBody = json(sessionResource, exampleSession);

/** Sessions: runs of an agent. */
export function sessionRoutes(context: ApiContext, reader: SessionReader): Route[] {
  const { catalog } = context;
  return [
    route('post', '/api/v2/sessions', {
      id: 'createSession',
      requires: 'createSessions',
      handlesRateLimit: true,
      largeBody: true,
      stores: true,
      summary: 'Create a session',
      headers: z.object({ 'Idempotency-Key': idempotencyKey }),
      body: json(sessionRequest, exampleRequest),
      status: 201,
      response: responseBody,
      errors: [
        'agent_not_found',
        'session_not_found',
        'forbidden',
        'invalid_agent',
        'feature_not_available',
        'idempotency_key_reused',
        'invalid_data_uri',
        'file_unavailable',
        'content_too_large',
        'too_many_turns',
        'too_many_sessions',
        'budget_exceeded',
      ],
      handler: async ({ headers, body, caller, rateLimitError, request }) => {
        const id = await createSession(context, {
          request: body,
          caller,
          key: headers['Idempotency-Key'],
          rateLimitError,
          host: request.get('host'),
        });
        addLogContext({ sessionId: id });
        return toResource(await reader.read(await authorizeSession(catalog, id, caller, 'read')));
      },
    }),
    route('get', '/api/v2/sessions/:id', {
      id: 'getSession',
      summary: 'A session',
      response: responseBody,
      handler: async ({ params, caller }) => {
        const { session, isForeign } = await authorizeRead(catalog, params.id, caller);
        const resource = toResource(await reader.read(session));
        return isForeign ? forEveryone(resource) : resource;
      },
    }),
    route('get', '/api/v2/sessions/:id/status', {
      id: 'getSessionStatus',
      summary: 'The state of a session',
      description: 'What this says has ended can be read in `/changes` before.',
      response: json(sessionStatus, exampleStatus),
      handler: async ({ params, caller }) => {
        const { session } = await authorizeRead(catalog, params.id, caller);
        return toStatus(await reader.read(session));
      },
    }),
    route('delete', '/api/v2/sessions/:id', {
      id: 'cancelSession',
      summary: 'Cancel a session',
      description: 'Its events are kept. Without effect on a session that has ended. A message starts it again.',
      errors: ['forbidden'],
      handler: async ({ params, caller }) => {
        const session = await authorizeSession(catalog, fromUuid(params.id), caller, 'cancel');
        await cancelIfOpen(context, reader, session);
      },
    }),
  ];
}
