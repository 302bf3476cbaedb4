import type { IRouter } from 'express';
import type { SessionRow } from '../catalog/schema.ts';
import { newId } from '../log/ids.ts';
import { createDraftBody, updateDraftBody, type DraftResource } from '../wire/resources.ts';
import { checkAgent } from './agents.ts';
import type { ApiContext } from './context.ts';
import { contextOf, param, parseBody } from './request.ts';
import { route } from './routes.ts';
import { commonFields, metadataOf, ownerColumns, ownSession, sessionNotFound } from './sessions.ts';

/** `/v1/agents/draft-sessions`: conversations with an agent that is still being written. */
export function draftSessionRoutes(router: IRouter, { catalog, agentCheck }: ApiContext): void {
  const resource = async (session: SessionRow): Promise<DraftResource> => ({
    type: 'session/draft',
    ...commonFields(session),
    agent_name: session.agent_name,
    agent_spec: await catalog.agents.spec(session.spec_hash),
  });

  route(router, '/v1/agents/draft-sessions', {
    post: async (request, response) => {
      const { subject } = contextOf(response);
      const { agent_spec: spec, agent_name: agentName } = parseBody(createDraftBody, request);
      const metadata = metadataOf(request);
      await checkAgent(spec, agentCheck, 'agent_spec.');
      const id = newId('ses');
      const now = new Date().toISOString();
      await catalog.sessions.insert({
        id,
        type: 'session/draft',
        agent_name: agentName || null,
        agent_version: null,
        spec_hash: await catalog.agents.putSpec(spec),
        title: null,
        ...ownerColumns(subject),
        metadata,
        created_at: now,
        updated_at: now,
      });
      response.json({ data: await resource(await ownSession(catalog, id, subject)) });
    },
  });

  route(router, '/v1/agents/draft-sessions/:sid', {
    get: async (request, response) => {
      const session = await ownSession(catalog, param(request, 'sid'), contextOf(response).subject);
      if (session.type !== 'session/draft') throw sessionNotFound(session.id);
      response.json({ data: await resource(session) });
    },
    patch: async (request, response) => {
      const { subject } = contextOf(response);
      const session = await ownSession(catalog, param(request, 'sid'), subject);
      if (session.type !== 'session/draft') throw sessionNotFound(session.id);
      const { agent_spec: spec } = parseBody(updateDraftBody, request);
      if (spec) await checkAgent(spec, agentCheck, 'agent_spec.');
      await catalog.sessions.update(session.id, {
        updated_at: new Date().toISOString(),
        ...(spec && { spec_hash: await catalog.agents.putSpec(spec) }),
      });
      response.json({ data: await resource(await ownSession(catalog, session.id, subject)) });
    },
  });
}
