import type { Config } from '../../config.ts';
import type { Caller } from '../../core/subject.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import type { Engine } from '../../engine/engine.ts';
import { checkAgent } from '../../engine/agent-check.ts';
import { ApiError } from '../http/errors.ts';
import { toSpec, withCaps } from './agent-to-spec.ts';
import type { Agent } from './wire/agent.ts';
import type { SessionRequest } from './wire/session.ts';

type AgentSources = Pick<Engine, 'catalog' | 'agentCheck'> & { config: Pick<Config, 'defaultModel'> };

/** The agent of a new session. */
export interface ResolvedAgent {
  /** With everything that its definition refers to, for those who read the session. */
  agent: Agent;
  /** What the engine runs. */
  spec: AgentSpec;
  /** The registered agent that it is; undefined if the caller has defined it, or changed it. */
  registered: { name: string; revision: number } | undefined;
}

/** Resolves the agent of a request, and checks that this server can run it. @throws ApiError or EngineError */
export async function resolveAgent(
  context: AgentSources,
  request: SessionRequest,
  { subject, roles }: Caller,
): Promise<ResolvedAgent> {
  const resolved = await resolve(context, request);
  // An agent that the caller has defined may use what the caller may use.
  const owner = resolved.registered ? null : { subjectId: subject.subjectId, draftRoles: roles };
  await checkAgent(resolved.spec, owner, context.agentCheck, 'agent.');
  return resolved;
}

async function resolve({ catalog, config }: AgentSources, request: SessionRequest): Promise<ResolvedAgent> {
  const { agent } = request;
  if (typeof agent !== 'string') {
    return { agent, spec: toSpec(agent, request, config.defaultModel), registered: undefined };
  }
  const row = await catalog.agents.get(agent);
  if (!row) throw new ApiError('agent_not_found', `there is no agent ${JSON.stringify(agent)}`);
  return {
    agent: toAgent(agent, row.spec),
    spec: withCaps(row.spec, request),
    registered: { name: agent, revision: row.version },
  };
}

/** An agent of the Sessions API as this API shows it. */
function toAgent(
  name: string,
  { model, instructions, response_format: format, client_tools: tools }: AgentSpec,
): Agent {
  return {
    name,
    description: '',
    environments: [],
    model: model.name,
    instructions: instructions ?? null,
    answer_format: format?.type === 'json_schema' ? (format.json_schema.schema ?? null) : null,
    tools: tools?.map((tool) => ({ ...tool, description: tool.description ?? '' })) ?? null,
  };
}
