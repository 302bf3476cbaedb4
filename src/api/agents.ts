import type { Agent } from '../catalog/agents.ts';
import { agentSpec, type AgentSpec } from '../wire/agent-spec.ts';
import { identifier } from '../wire/bounds.ts';
import { agentResource, dataOf, type AgentResource } from '../wire/resources.ts';
import type { ApiContext } from './context.ts';
import { ApiError } from './errors.ts';
import { exampleAgent, exampleSpec } from './examples.ts';
import { json, route, type Route } from './routes.ts';

const NAME = /^[\p{L}\p{N}][\p{L}\p{N}._:@/ -]{0,127}$/u;

/** Paths of other resources under `/v1/agents`. */
const RESERVED = new Set(['sessions', 'draft-sessions', 'sandbox']);

const answer = json(dataOf(agentResource), { data: exampleAgent });

/** `/v1/agents/{name}`: the registry of agents. */
export function agentRoutes({ catalog, agentCheck }: ApiContext): Route[] {
  return [
    route(
      'get',
      '/v1/agents/:agent_name',
      { id: 'getAgent', tag: 'Agents', summary: 'The newest version of an agent', answer, errors: ['agent_not_found'] },
      async ({ params: { agent_name: name } }) => {
        const agent = identifier.safeParse(name).success ? await catalog.agents.get(name) : undefined;
        if (!agent) throw agentNotFound(name);
        return { data: toResource(agent) };
      },
    ),
    route(
      'put',
      '/v1/agents/:agent_name',
      {
        id: 'putAgent',
        needs: 'writeAgents',
        tag: 'Agents',
        summary: 'Register an agent, or a new version of it',
        description: 'Sessions that have begun stay with the version that they began with.',
        body: json(agentSpec, exampleSpec),
        answer,
        errors: ['invalid_agent', 'feature_not_available'],
      },
      async ({ params: { agent_name: name }, body: spec }) => {
        if (!NAME.test(name) || RESERVED.has(name)) {
          throw new ApiError('invalid_agent', `an agent can't be called ${JSON.stringify(name)}`, {
            param: 'agent_name',
          });
        }
        await checkAgent(spec, agentCheck);
        return { data: toResource(await catalog.agents.put(name, spec, new Date().toISOString())) };
      },
    ),
  ];
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
