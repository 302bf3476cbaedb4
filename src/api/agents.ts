import type { IRouter } from 'express';
import type { Agent } from '../catalog/agents.ts';
import { agentSpec, type AgentSpec } from '../wire/agent-spec.ts';
import { identifier } from '../wire/bounds.ts';
import type { AgentResource } from '../wire/resources.ts';
import type { ApiContext } from './context.ts';
import { ApiError } from './errors.ts';
import { param, parseBody } from './request.ts';
import { route } from './routes.ts';

const NAME = /^[\p{L}\p{N}][\p{L}\p{N}._:@/ -]{0,127}$/u;

/** Paths of other resources under `/v1/agents`. */
const RESERVED = new Set(['sessions', 'draft-sessions', 'sandbox']);

/** `/v1/agents/{name}`: the registry of agents. */
export function agentRoutes(router: IRouter, context: ApiContext): void {
  const { catalog, agentCheck } = context;
  route(router, '/v1/agents/:name', {
    get: async (request, response) => {
      const name = param(request, 'name');
      const agent = identifier.safeParse(name).success ? await catalog.agents.get(name) : undefined;
      if (!agent) throw agentNotFound(name);
      response.json({ data: toResource(agent) });
    },
    put: async (request, response) => {
      const name = param(request, 'name');
      if (!NAME.test(name) || RESERVED.has(name)) {
        throw new ApiError('invalid_agent', `an agent can't be called ${JSON.stringify(name)}`, { param: 'name' });
      }
      const spec = parseBody(agentSpec, request);
      await checkAgent(spec, agentCheck);
      const agent = await catalog.agents.put(name, spec, new Date().toISOString());
      response.json({ data: toResource(agent) });
    },
  });
}

export function agentNotFound(name: string): ApiError {
  return new ApiError('agent_not_found', `there is no agent ${JSON.stringify(name)}`);
}

/** @throws ApiError if this server can't run the agent */
export async function checkAgent(spec: AgentSpec, check: ApiContext['agentCheck'], path = ''): Promise<void> {
  const problem = await check.problem(spec);
  if (problem) throw new ApiError(problem.code, problem.message, { param: path + problem.param });
}

function toResource({ name, version, spec, created_at, updated_at }: Agent): AgentResource {
  return { name, version, spec, created_at, updated_at };
}
