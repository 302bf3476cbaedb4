import { z } from 'zod';
import { authorizeSession, sessionNotFound } from '../../engine/access.ts';
import { checkAgent } from '../../engine/agent-check.ts';
import { cancelTurns, deleteSession } from '../../engine/engine.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { ownerColumns } from '../../catalog/sessions.ts';
import { sessionNow } from '../../features/inbox/session-now.ts';
import { newId } from '../../engine/new-id.ts';
import type { Subject } from '../../core/subject.ts';
import { addLogContext } from '../../telemetry/log-context.ts';
import { idempotencyKey } from '../http/headers.ts';
import { metadata } from './wire/headers.ts';
import { cancelBody, createSessionBody, sessionResource, type CreateSessionBody } from './wire/resources.ts';
import type { ApiContext } from '../http/context.ts';
import { agentNotFound } from '../http/errors.ts';
import { exampleSession } from './examples.ts';
import { byKey } from '../../engine/request-claims.ts';
import { dataOf, json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { toSession } from './wire/resources-to-wire.ts';

const route = routesOf('Sessions');

const responseBody = dataOf(sessionResource, exampleSession);

/** `/v1/agents/sessions`: conversations with registered agents. */
export function sessionRoutes(context: ApiContext): Route[] {
  const { catalog, agentCheck } = context;
  return [
    route('post', '/v1/agents/sessions', {
      id: 'createSession',
      requires: 'createSessions',
      stores: true,
      summary: 'Create a session with an agent',
      description: "The session keeps the agent's current version.",
      headers: z.object({ ...idempotencyKey, ...metadata }),
      body: json(createSessionBody, { agent_name: 'helper' }),
      status: 201,
      response: responseBody,
      errors: ['agent_not_found', 'invalid_agent', 'feature_not_available', 'idempotency_key_reused'],
      handler: async ({ headers, body, caller }) => {
        const { 'Idempotency-Key': key, 'x-tfy-metadata': metadata = null } = headers;
        const unused = newId('ses');
        const request = { catalog, caller, resource: 'sessions', key, body: [body, metadata] };
        const id = await byKey({ ...request, resourceId: unused, sessionId: unused }, async ({ resourceId, isNew }) => {
          const isCreated = !isNew && (await catalog.sessions.get(resourceId)) !== undefined;
          if (!isCreated) await createSession(body, caller.subject, { id: resourceId, metadata });
          return resourceId;
        });
        addLogContext({ sessionId: id });
        return { data: toSession(await sessionNow(await authorizeSession(catalog, id, caller, 'read'), context)) };
      },
    }),
    route('get', '/v1/agents/sessions/:session_id', {
      id: 'getSession',
      summary: 'A session',
      response: responseBody,
      handler: async ({ params, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        if (session.type !== 'session') throw sessionNotFound(session.id);
        return { data: toSession(await sessionNow(session, context)) };
      },
    }),
    route('delete', '/v1/agents/sessions/:session_id', {
      id: 'deleteSession',
      summary: 'Delete a session or draft with everything in it',
      description:
        'A running turn is cancelled. After the answer the session no longer exists; its log, its files and its ' +
        'histories in Temporal are removed, usually within a minute.',
      errors: ['forbidden'],
      handler: async ({ params, caller }) =>
        deleteSession(context, await authorizeSession(catalog, params.session_id, caller, 'delete')),
    }),
    route('post', '/v1/agents/sessions/:session_id/cancel', {
      id: 'cancelSession',
      summary: 'Cancel the running turn of a session or draft, and those in its queue',
      description: 'Their events so far are kept. With `close: true` the session accepts no further turns.',
      body: json(cancelBody, {}),
      response: json(z.object({}), {}),
      errors: ['forbidden'],
      handler: async ({ params, body, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'cancel');
        await cancelTurns(context, session, { close: body.close === true });
        return {};
      },
    }),
  ];

  async function createSession(body: CreateSessionBody, subject: Subject, row: Pick<SessionRow, 'id' | 'metadata'>) {
    const agent = await catalog.agents.get(body.agent_name);
    if (!agent) throw agentNotFound(body.agent_name);
    await checkAgent(agent.spec, { owner: null, agentCheck, path: 'agent.' });
    const now = new Date().toISOString();
    await catalog.sessions.insert({
      ...row,
      type: 'session',
      agent_name: agent.name,
      agent_version: agent.version,
      spec_hash: agent.spec_hash,
      title: body.title || null,
      ...ownerColumns(subject),
      created_at: now,
      updated_at: now,
    });
  }
}
