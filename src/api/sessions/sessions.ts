import { z } from 'zod';
import { hashOf } from '../../lib/hash.ts';
import { authorizeSession, sessionNotFound } from '../../engine/access.ts';
import { checkAgent } from '../../engine/agent-check.ts';
import { cancelTurns, deleteSession } from '../../engine/engine.ts';
import { ownerColumns } from '../../catalog/sessions.ts';
import { sessionNow } from '../../engine/session-now.ts';
import { newId } from '../../engine/new-id.ts';
import type { Subject } from '../../core/subject.ts';
import { addLogContext } from '../../telemetry/log-context.ts';
import { idempotencyKey } from '../http/headers.ts';
import { metadata } from './wire/headers.ts';
import { cancelBody, createSessionBody, dataOf, sessionResource, type CreateSessionBody } from './wire/resources.ts';
import { agentNotFound } from './agents.ts';
import type { ApiContext } from '../http/context.ts';
import { isRefusal } from '../http/errors.ts';
import { exampleSession } from './examples.ts';
import { claimRequest } from '../../engine/request-claims.ts';
import { json, route, type Route } from '../http/route.ts';
import { toSession } from './wire/resources-to-wire.ts';

const answer = json(dataOf(sessionResource), { data: exampleSession });

/** `/v1/agents/sessions`: conversations with registered agents. */
export function sessionRoutes(context: ApiContext): Route[] {
  const { catalog, agentCheck } = context;
  return [
    route(
      'post',
      '/v1/agents/sessions',
      {
        id: 'createSession',
        requires: 'createSessions',
        stores: true,
        tag: 'Sessions',
        summary: 'Create a session with an agent',
        description: "The session keeps the agent's current version.",
        headers: z.object({ ...idempotencyKey, ...metadata }),
        body: json(createSessionBody, { agent_name: 'helper' }),
        status: 201,
        answer,
        errors: ['agent_not_found', 'invalid_agent', 'feature_not_available', 'idempotency_key_reused'],
      },
      async ({ headers, body, caller }) => {
        const { 'Idempotency-Key': key, 'x-tfy-metadata': metadata = null } = headers;
        const session = { id: newId('ses'), body, metadata, subject: caller.subject };
        const id = key === undefined ? await createSession(session) : await createOnce(key, session);
        addLogContext({ sessionId: id });
        return { data: toSession(await sessionNow(await authorizeSession(catalog, id, caller, 'read'), context)) };
      },
    ),
    route(
      'get',
      '/v1/agents/sessions/:session_id',
      { id: 'getSession', tag: 'Sessions', summary: 'A session', answer, errors: ['session_not_found'] },
      async ({ params, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        if (session.type !== 'session') throw sessionNotFound(session.id);
        return { data: toSession(await sessionNow(session, context)) };
      },
    ),
    route(
      'delete',
      '/v1/agents/sessions/:session_id',
      {
        id: 'deleteSession',
        tag: 'Sessions',
        summary: 'Delete a session or draft with everything in it',
        description:
          'A running turn is cancelled. After the answer the session no longer exists; its log, its files and its ' +
          'histories in Temporal are removed, usually within a minute.',
        errors: ['forbidden', 'session_not_found'],
      },
      async ({ params, caller }) =>
        deleteSession(context, await authorizeSession(catalog, params.session_id, caller, 'delete')),
    ),
    route(
      'post',
      '/v1/agents/sessions/:session_id/cancel',
      {
        id: 'cancelSession',
        tag: 'Sessions',
        summary: 'Cancel the running turn of a session or draft, and those in its queue',
        description: 'Their events so far are kept. With `close: true` the session accepts no further turns.',
        body: json(cancelBody, {}),
        answer: json(z.object({}), {}),
        errors: ['forbidden', 'session_not_found'],
      },
      async ({ params, body, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'cancel');
        await cancelTurns(context, session, { close: body.close === true });
        return {};
      },
    ),
  ];

  /** Creates the session unless an equal request with this key has created it; returns its id. */
  async function createOnce(key: string, session: NewSession): Promise<string> {
    const { body, metadata, subject } = session;
    const scope = `${subject.subjectId}/sessions`;
    const bodyHash = hashOf([body, metadata]);
    const claim = await claimRequest({ catalog, scope, key, bodyHash, resourceId: session.id, sessionId: session.id });
    const id = claim.resourceId;
    if (!claim.isNew && (await catalog.sessions.get(id))) return id;
    try {
      return await createSession({ ...session, id });
    } catch (error) {
      if (isRefusal(error)) await claim.release();
      throw error;
    }
  }

  async function createSession({ id, body, metadata, subject }: NewSession): Promise<string> {
    const agent = await catalog.agents.get(body.agent_name);
    if (!agent) throw agentNotFound(body.agent_name);
    await checkAgent(agent.spec, { owner: null, agentCheck, path: 'agent.' });
    const now = new Date().toISOString();
    await catalog.sessions.insert({
      id,
      type: 'session',
      agent_name: agent.name,
      agent_version: agent.version,
      spec_hash: agent.spec_hash,
      title: body.title || null,
      ...ownerColumns(subject),
      metadata,
      created_at: now,
      updated_at: now,
    });
    return id;
  }
}

interface NewSession {
  id: string;
  body: CreateSessionBody;
  metadata: string | null;
  subject: Subject;
}
