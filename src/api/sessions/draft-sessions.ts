import { z } from 'zod';
import type { SessionAction } from '../../auth/rights.ts';
import type { Caller } from '../../core/subject.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { sessionNow } from '../../features/inbox/session-now.ts';
import { newId } from '../../engine/new-id.ts';
import { addLogContext } from '../../telemetry/log-context.ts';
import { metadata } from './wire/headers.ts';
import { createDraftBody, draftResource, updateDraftBody, type DraftResource } from './wire/resources.ts';
import { authorizeSession, sessionNotFound } from '../../engine/access.ts';
import { checkNewAgent } from '../../engine/agent-check.ts';
import { deleteSession } from '../../engine/engine.ts';
import { SchemaBudget } from '../../engine/schema-budget.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import type { ApiContext } from '../http/context.ts';
import { exampleDraft, exampleSpec } from './examples.ts';
import { dataOf, json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { toDraft } from './wire/resources-to-wire.ts';
import { ownerColumns } from '../../catalog/sessions.ts';

const route = routesOf('Draft sessions');

const responseBody = dataOf(draftResource, exampleDraft);

/** `/v1/agents/draft-sessions`: conversations with an agent that is still being edited. */
export function draftSessionRoutes(context: ApiContext): Route[] {
  const { catalog, agentCheck } = context;
  return [
    route('post', '/v1/agents/draft-sessions', {
      id: 'createDraftSession',
      largeBody: true,
      stores: true,
      requires: 'createSessions',
      summary: 'Create a draft session with an agent of its own',
      description: 'For its turns and events, a draft has the routes of a session.',
      headers: z.object(metadata),
      body: json(createDraftBody, { agent_spec: exampleSpec, agent_name: 'idea' }),
      response: responseBody,
      errors: ['forbidden', 'invalid_agent', 'feature_not_available'],
      handler: async ({ headers, body: { agent_spec: spec, agent_name: agentName }, caller }) => {
        await checkSpec(spec, caller);
        const id = newId('ses');
        addLogContext({ sessionId: id });
        const now = new Date().toISOString();
        await catalog.sessions.insert({
          id,
          type: 'session/draft',
          agent_name: agentName || null,
          agent_version: null,
          spec_hash: await catalog.agents.putSpec(spec, now),
          title: null,
          ...ownerColumns(caller.subject),
          draft_roles: JSON.stringify(caller.roles),
          metadata: headers['x-tfy-metadata'] ?? null,
          created_at: now,
          updated_at: now,
        });
        return { data: await readDraft(id, caller) };
      },
    }),
    route('get', '/v1/agents/draft-sessions/:session_id', {
      id: 'getDraftSession',
      summary: 'A draft',
      response: responseBody,
      handler: async ({ params, caller }) => ({ data: await readDraft(params.session_id, caller) }),
    }),
    route('patch', '/v1/agents/draft-sessions/:session_id', {
      id: 'updateDraftSession',
      largeBody: true,
      stores: true,
      summary: 'Change the agent of a draft',
      description: 'The change applies from the next turn on.',
      body: json(updateDraftBody, { agent_spec: exampleSpec }),
      response: responseBody,
      errors: ['forbidden', 'invalid_agent', 'feature_not_available'],
      handler: async ({ params, body: { agent_spec: spec }, caller }) => {
        const { id } = await authorizeDraft(params.session_id, caller, 'edit');
        if (spec) await checkSpec(spec, caller);
        const now = new Date().toISOString();
        await catalog.sessions.update(id, {
          updated_at: now,
          ...(spec && {
            spec_hash: await catalog.agents.putSpec(spec, now),
            draft_roles: JSON.stringify(caller.roles),
          }),
        });
        return { data: await readDraft(id, caller) };
      },
    }),
    route('delete', '/v1/agents/draft-sessions/:session_id', {
      id: 'deleteDraftSession',
      summary: 'Delete a draft with everything in it',
      errors: ['forbidden'],
      handler: async ({ params, caller }) =>
        deleteSession(context, await authorizeDraft(params.session_id, caller, 'delete')),
    }),
  ];

  async function checkSpec(spec: AgentSpec, { subject, roles }: Caller): Promise<void> {
    const owner = { subjectId: subject.subjectId, draftRoles: roles };
    await checkNewAgent(spec, { owner, agentCheck, budget: new SchemaBudget(), path: 'agent_spec.' });
  }

  async function readDraft(id: string, caller: Caller): Promise<DraftResource> {
    return toDraft(await sessionNow(await authorizeDraft(id, caller, 'read'), context), catalog);
  }

  async function authorizeDraft(id: string, caller: Caller, action: SessionAction): Promise<SessionRow> {
    const session = await authorizeSession(catalog, id, caller, action);
    if (session.type !== 'session/draft') throw sessionNotFound(id);
    return session;
  }
}
