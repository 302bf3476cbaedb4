import { z } from 'zod';
import type { Catalog } from '../catalog/catalog.ts';
import { threadIdOf } from '../core/ids.ts';
import type { ModelCall } from '../core/model-call.ts';
import type { SubAgent, ToolCall } from '../core/records.ts';
import { MAX_DEPTH, MAX_STARTED_BY_MESSAGE, MAX_STARTED_BY_TURN } from '../core/sub-agents.ts';
import type { ModelProviders } from '../models/providers.ts';
import { hasServers, iterationLimit, startsDynamic, type AgentSpec } from '../spec/agent-spec.ts';

export interface SubAgentSources {
  catalog: { agents: Pick<Catalog['agents'], 'spec'> };
  models: Pick<ModelProviders, 'has' | 'prefixProblem'>;
}

type CallingThread = Pick<ModelCall, 'messageId' | 'threadId' | 'specHash' | 'mayStart' | 'subAgent' | 'agents'>;

/** A call of `create_sub_agent` at its place in a message. */
export interface SubAgentCall {
  call: Pick<ToolCall, 'id'>;
  index: number;
  args: Record<string, unknown>;
  /** Set for a call of a client: see `AsDraft`. */
  draftRoles?: readonly string[] | undefined;
  /** How many sub-agents the message has started before. */
  started: number;
}

export type StartedSubAgent = { thread: SubAgent; input: string } | { problem: string };

/** The bounds of the tool's schema, whose validation has a limited time, and may not have been completed. */
const parameters = z.object({
  name: z.string().min(1).max(64),
  input: z.string().min(1),
  model: z.string().min(1).max(256).optional(),
  agent: z.string().optional(),
});

/** Decides whether a message of a thread may start a sub-agent, and with which agent. `problem`: why it may not. */
export async function startSubAgent(
  { catalog, models }: SubAgentSources,
  { messageId, threadId, specHash, mayStart = 0, subAgent: parent, agents = {} }: CallingThread,
  { call, index, args, draftRoles, started }: SubAgentCall,
): Promise<StartedSubAgent> {
  const depth = (parent?.depth ?? 0) + 1;
  if (depth > MAX_DEPTH)
    return { problem: `Sub-agents can be nested ${MAX_DEPTH} levels deep: do this task yourself.` };
  if (started >= mayStart) {
    const limits = `${MAX_STARTED_BY_MESSAGE} by one message, ${MAX_STARTED_BY_TURN} in all`;
    return { problem: `This sub-agent was not started: no more can be started now (${limits}).` };
  }
  const parsed = parameters.safeParse(args);
  if (!parsed.success) return { problem: 'The arguments do not fit the schema of the tool.' };
  const { model, agent } = parsed.data;
  const [title, input] = [parsed.data.name.toWellFormed(), parsed.data.input.toWellFormed()];
  const thread = { threadId: threadIdOf(messageId, index), title, parent: { threadId, toolCallId: call.id }, depth };
  const own = await catalog.agents.spec(specHash);
  if (agent !== undefined) {
    const allowed = (own.agents ?? []).filter((name) => Object.hasOwn(agents, name));
    const hash = allowed.includes(agent) ? agents[agent] : undefined;
    if (hash === undefined) return { problem: `There is no such agent. The agents are: ${allowed.join(', ')}.` };
    if (model !== undefined) return { problem: `The agent ${agent} has its own model: leave out "model".` };
    const spec = await catalog.agents.spec(hash);
    return { thread: { ...thread, specHash: hash, agent, isRegistered: true, ...limitsOf(spec) }, input };
  }
  if (!startsDynamic(own)) return { problem: `Name one of these agents as "agent": ${(own.agents ?? []).join(', ')}.` };
  if (model !== undefined) {
    const problem = models.prefixProblem(model);
    if (problem !== undefined) return { problem: `There is no model ${model}: ${problem}` };
    if (!(await models.has(model))) return { problem: `There is no model ${model}.` };
  }
  const inherited = model ?? parent?.model;
  const roles = draftRoles ?? parent?.draftRoles;
  return {
    thread: {
      ...thread,
      specHash,
      ...limitsOf(own),
      ...(parent?.isRegistered && { isRegistered: true }),
      ...(roles && { draftRoles: roles }),
      ...(inherited !== undefined && { model: inherited }),
    },
    input,
  };
}

function limitsOf(spec: AgentSpec): Pick<SubAgent, 'hasServers' | 'iterations'> {
  return { hasServers: hasServers(spec), iterations: iterationLimit(spec) };
}
