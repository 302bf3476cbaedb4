import type { Response } from 'express';
import { z } from 'zod';
import { isId } from '../../core/ids.ts';
import type { Caller } from '../../core/subject.ts';
import { authorizeSession } from '../../engine/access.ts';
import { EngineError } from '../../engine/errors.ts';
import { newId } from '../../engine/new-id.ts';
import { byKey } from '../../engine/request-claims.ts';
import { tooManyRules } from '../../features/code/permissions/remember.ts';
import type { RuleTarget } from '../../features/code/permissions/rule-rows.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { codeActionsOf } from '../../spec/code-actions.ts';
import { permissionRule, ruleProblem, type PermissionRule } from '../../spec/permission-rule.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { idempotencyKey } from '../http/headers.ts';
import { dataOf, json, type Route } from '../http/route.ts';
import { SESSION_ERRORS } from './errors.ts';
import { exampleRule } from './examples.ts';
import { requireAgent } from './require-agent.ts';
import { routesOf } from './route.ts';
import { ruleResource, ruleToResource, type RuleResource } from './wire/permissions.ts';

const route = routesOf('Permissions');

const headers = z.object(idempotencyKey);
const body = json(permissionRule, { effect: 'allow', action: 'shell', command: 'git status *' });
const list = dataOf(z.array(ruleResource), [exampleRule]);
const responseBody = dataOf(ruleResource, exampleRule);
const existing = 'there is an equal rule already';

/** A request to change the rules of a session, or those of a user for an agent. */
interface Change {
  target: RuleTarget;
  caller: Caller;
  key: string | undefined;
}

/** The rules that users make on what agents may do in code: in a session, and in all their sessions with an agent. */
export function permissionRoutes({ catalog }: ApiContext): Route[] {
  return [
    route('get', '/v1/agents/sessions/:session_id/permissions', {
      id: 'listSessionRules',
      summary: 'The rules of a session, oldest first',
      response: list,
      handler: async ({ params, caller }) => {
        const { id: sessionId } = await authorizeSession(catalog, params.session_id, caller, 'read');
        return rulesIn({ scope: 'session', sessionId });
      },
    }),
    route('post', '/v1/agents/sessions/:session_id/permissions', {
      id: 'addSessionRule',
      summary: 'Add a rule to a session',
      description: 'It counts for the calls that the agent makes from now on. Calls that wait are still answered.',
      headers,
      body,
      status: 201,
      response: responseBody,
      existing,
      errors: ['forbidden', 'invalid_rule', 'idempotency_key_reused'],
      handler: async ({ params, headers: { 'Idempotency-Key': key }, body: rule, caller, response }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'decide');
        checkRule(rule, await catalog.agents.spec(session.spec_hash));
        return add(rule, { target: { scope: 'session', sessionId: session.id }, caller, key }, response);
      },
    }),
    route('delete', '/v1/agents/sessions/:session_id/permissions/:rule_id', {
      id: 'deleteSessionRule',
      summary: 'Delete a rule of a session',
      headers,
      errors: ['forbidden', 'idempotency_key_reused'],
      handler: async ({ params, headers: { 'Idempotency-Key': key }, caller }) => {
        const { id: sessionId } = await authorizeSession(catalog, params.session_id, caller, 'decide');
        await remove(params.rule_id, { target: { scope: 'session', sessionId }, caller, key });
      },
    }),
    route('get', '/v1/agents/:agent_name/permissions', {
      id: 'listAgentRules',
      summary: 'Your rules for an agent, oldest first',
      response: list,
      errors: ['agent_not_found'],
      handler: async ({ params, caller }) => {
        const { name } = await requireAgent(catalog, params.agent_name);
        return rulesIn(ofCaller(caller, name));
      },
    }),
    route('post', '/v1/agents/:agent_name/permissions', {
      id: 'addAgentRule',
      summary: 'Add a rule for your sessions with an agent',
      headers,
      body,
      status: 201,
      response: responseBody,
      existing,
      errors: ['agent_not_found', 'invalid_rule', 'idempotency_key_reused'],
      handler: async ({ params, headers: { 'Idempotency-Key': key }, body: rule, caller, response }) => {
        const { name, spec } = await requireAgent(catalog, params.agent_name);
        checkRule(rule, spec);
        return add(rule, { target: ofCaller(caller, name), caller, key }, response);
      },
    }),
    route('delete', '/v1/agents/:agent_name/permissions/:rule_id', {
      id: 'deleteAgentRule',
      summary: 'Delete one of your rules for an agent',
      headers,
      errors: ['agent_not_found', 'idempotency_key_reused'],
      handler: async ({ params, headers: { 'Idempotency-Key': key }, caller }) => {
        const { name } = await requireAgent(catalog, params.agent_name);
        await remove(params.rule_id, { target: ofCaller(caller, name), caller, key });
      },
    }),
  ];

  async function rulesIn(target: RuleTarget): Promise<{ data: RuleResource[] }> {
    return { data: (await catalog.permissionRules.in([target], Date.now())).map(ruleToResource) };
  }

  /** Responds with 200 if there is an equal rule. */
  async function add(
    rule: PermissionRule,
    { target, caller, key }: Change,
    response: Response,
  ): Promise<{ data: RuleResource }> {
    const created = { resourceId: newId('rule'), sessionId: sessionOf(target) };
    const request = { catalog, caller, resource: `permissions/${nameOf(target)}`, key, body: rule, ...created };
    const added = await byKey(request, async ({ resourceId: id }) => {
      const one = await catalog.permissionRules.add(target, { rule, by: caller.subject, id }, Date.now());
      if (!one) throw tooManyRules();
      return one;
    });
    const data = { data: ruleToResource(added.stored) };
    if (!added.isNew) response.json(data);
    return data;
  }

  async function remove(id: string, { target, caller, key }: Change): Promise<void> {
    if (!isId(id)) throw ruleNotFound(id);
    const resource = `permissions/${nameOf(target)}/${id}`;
    await byKey({ catalog, caller, resource, key, body: {}, sessionId: sessionOf(target) }, async ({ isNew }) => {
      if (isNew && !(await catalog.permissionRules.delete(target, id))) throw ruleNotFound(id);
    });
  }
}

function ruleNotFound(id: string): ApiError {
  return new ApiError(SESSION_ERRORS.rule_not_found, `there is no rule ${JSON.stringify(id)} here`);
}

function ofCaller({ subject: { subjectId } }: Caller, agentName: string): RuleTarget {
  return { scope: 'always', subjectId, agentName };
}

function sessionOf(target: RuleTarget): string {
  return target.scope === 'always' ? '' : target.sessionId;
}

function nameOf(target: RuleTarget): string {
  return target.scope === 'always' ? `agents/${target.agentName}` : target.sessionId;
}

/** @throws EngineError `invalid_rule` */
function checkRule(rule: PermissionRule, spec: AgentSpec): void {
  const isOver = typeof rule.expires_at === 'string' && Date.parse(rule.expires_at) <= Date.now();
  const problem =
    ruleProblem(rule) ??
    (isOver ? 'expires_at is in the past' : undefined) ??
    (codeActionsOf(spec) ? undefined : 'the agent does not act in code: no rule counts for it');
  if (problem !== undefined) throw new EngineError('invalid_rule', problem);
}
