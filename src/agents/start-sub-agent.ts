import { z } from 'zod';
import type { KernelCatalog } from '../catalog/catalog.ts';
import { threadIdOf } from '../core/ids.ts';
import type { ModelCall } from '../core/model-call.ts';
import type { ToolCall } from '../core/records/calls.ts';
import type { SubAgent } from '../core/records/threads.ts';
import { MAX_DEPTH, MAX_STARTED_BY_MESSAGE, MAX_STARTED_BY_TURN } from '../core/sub-agents.ts';
import { retryWhileUnavailable } from '../engine/retry.ts';
import type { ModelProviders } from '../models/providers.ts';
import { hasServers, iterationLimit, startsDynamic, type AgentSpec } from '../spec/agent-spec.ts';
import { codeActionsOf } from '../spec/code-actions.ts';
import { startedAgents, type SystemTool } from '../tools/system-tool.ts';

export interface SubAgentSources {
  catalog: { agents: Pick<KernelCatalog['agents'], 'spec'> };
  models: Pick<ModelProviders, 'has' | 'prefixProblem'>;
}

type CallingThread = Pick<ModelCall, 'messageId' | 'threadId' | 'specHash' | 'mayStart' | 'subAgent' | 'agents'>;

/** A call of `create_sub_agent` at its position in a message. */
interface SubAgentCall {
  call: Pick<ToolCall, 'id'>;
  index: number;
  args: unknown;
  /** Set for a call of a client: see `AsDraft`. */
  draftRoles?: readonly string[] | undefined;
  /** How many sub-agents the message has started before. */
  started: number;
}

type StartedSubAgent = { thread: SubAgent; input: string } | { problem: string };

const NAME = { type: 'string', minLength: 1, maxLength: 64, description: 'A short name, for display.' };
const INPUT = {
  type: 'string',
  minLength: 1,
  description: 'The task, complete in itself: the sub-agent does not see this conversation.',
};
const MAX_TURNS = {
  type: 'integer',
  minimum: 1,
  description: 'A lower limit of model calls than the usual one, after which the sub-agent ends with what it has said.',
};
const MODEL = { type: 'string', minLength: 1, maxLength: 256, description: 'Default: your own model.' };

/** Lets the model start a sub-agent, if the agent may start one. */
export const CREATE_SUB_AGENT = {
  name: 'create_sub_agent',
  offer: (spec) => {
    const agents = spec.agents ?? [];
    const isDynamic = startsDynamic(spec);
    if (!isDynamic && agents.length === 0) return undefined;
    const agent = {
      type: 'string',
      enum: agents,
      description: isDynamic
        ? 'The agent that does the task, with its own tools and model. Default: a copy of you.'
        : 'The agent that does the task, with its own tools and model.',
    };
    return {
      description:
        'Start a sub-agent that works on a task by itself, and get its answer as the result. ' +
        'Sub-agents that you start in one message work in parallel.',
      parameters: {
        type: 'object',
        properties: {
          name: NAME,
          input: INPUT,
          ...(isDynamic && { model: MODEL }),
          ...(agents.length > 0 && { agent }),
          ...(codeActionsOf(spec) && { max_turns: MAX_TURNS }),
        },
        required: ['name', 'input', ...(isDynamic ? [] : ['agent'])],
        additionalProperties: false,
      },
    };
  },
  decision: (spec) => codeActionsOf(spec)?.approvals.task,
  isOffered: ({ mayStart = 0 }) => mayStart > 0,
  route: async ({ call, index, args, asDraft, earlier, modelCall, signal }, sources) => {
    const subAgent = { call, index, args, ...asDraft, started: startedAgents(earlier) };
    const started = await retryWhileUnavailable(() => startSubAgent(sources, modelCall, subAgent), signal);
    if ('problem' in started) return { route: { to: 'answered' }, ...started };
    return { route: { to: 'thread', threadId: started.thread.threadId }, started };
  },
} satisfies SystemTool<SubAgentSources>;

/** The bounds of the tool's schema, checked again: the validation by it has a time limit and may be incomplete. */
const parameters = z.object({
  name: z.string().min(1).max(64),
  input: z.string().min(1),
  model: z.string().min(1).max(256).optional(),
  agent: z.string().optional(),
  max_turns: z.int().min(1).optional(),
});

/** Decides whether a message of a thread may start a sub-agent, and with which agent. `problem`: why it may not. */
export async function startSubAgent(
  { catalog, models }: SubAgentSources,
  { messageId, threadId, specHash, mayStart = 0, subAgent: parent, agents = {} }: CallingThread,
  { call, index, args, draftRoles, started }: SubAgentCall,
): Promise<StartedSubAgent> {
  const depth = (parent?.depth ?? 0) + 1;
  if (parent?.isTask) return { problem: 'A sub-agent of this agent starts no others: do this task yourself.' };
  if (depth > MAX_DEPTH)
    return { problem: `Sub-agents can be nested ${MAX_DEPTH} levels deep: do this task yourself.` };
  if (started >= mayStart) {
    const limits = `${MAX_STARTED_BY_MESSAGE} by one message, ${MAX_STARTED_BY_TURN} in all`;
    return { problem: `This sub-agent was not started: no more can be started now (${limits}).` };
  }
  const parsed = parameters.safeParse(args);
  if (!parsed.success) return { problem: 'The arguments do not fit the schema of the tool.' };
  const { model, agent, max_turns: maxTurns } = parsed.data;
  const [title, input] = [parsed.data.name.toWellFormed(), parsed.data.input.toWellFormed()];
  const thread = { threadId: threadIdOf(messageId, index), title, parent: { threadId, toolCallId: call.id }, depth };
  const own = await catalog.agents.spec(specHash);
  const tasks = codeActionsOf(own)?.sub_tasks;
  const asTask = tasks && {
    isTask: true as const,
    iterations: Math.min(maxTurns ?? tasks.max_turns, tasks.max_turns),
  };
  if (agent !== undefined) {
    const allowed = (own.agents ?? []).filter((name) => Object.hasOwn(agents, name));
    const hash = allowed.includes(agent) ? agents[agent] : undefined;
    if (hash === undefined) return { problem: `There is no such agent. The agents are: ${allowed.join(', ')}.` };
    if (model !== undefined) return { problem: `The agent ${agent} has its own model: leave out "model".` };
    const spec = await catalog.agents.spec(hash);
    return { thread: { ...thread, specHash: hash, agent, isRegistered: true, ...limitsOf(spec), ...asTask }, input };
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
      ...asTask,
      ...(parent?.isRegistered && { isRegistered: true }),
      ...(roles && { draftRoles: roles }),
      ...(inherited !== undefined && { model: inherited }),
    },
    input,
  };
}

function limitsOf(spec: AgentSpec): Pick<SubAgent, 'hasServers' | 'iterations' | 'maxTasks' | 'endsOnDenial'> {
  const actions = codeActionsOf(spec);
  return {
    hasServers: hasServers(spec),
    iterations: iterationLimit(spec),
    ...(actions && { maxTasks: actions.sub_tasks.max_concurrent }),
    ...(actions?.endsOnDenial && { endsOnDenial: true }),
  };
}
