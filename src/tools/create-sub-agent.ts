import { startsDynamic, type AgentSpec } from '../spec/agent-spec.ts';
import type { AgentTool } from './toolset.ts';

export const CREATE_SUB_AGENT = 'create_sub_agent';

const NAME = { type: 'string', minLength: 1, maxLength: 64, description: 'A short name, for display.' };
const INPUT = {
  type: 'string',
  minLength: 1,
  description: 'The task, complete in itself: the sub-agent does not see this conversation.',
};
const MODEL = { type: 'string', minLength: 1, maxLength: 256, description: 'Default: your own model.' };

/** Lets the model start a sub-agent. Undefined if the agent may start none. */
export function createSubAgent(spec: AgentSpec): AgentTool | undefined {
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
    name: CREATE_SUB_AGENT,
    description:
      'Start a sub-agent that works on a task by itself, and get its answer as the result. ' +
      'Sub-agents that you start in one message work in parallel.',
    parameters: {
      type: 'object',
      properties: { name: NAME, input: INPUT, ...(isDynamic && { model: MODEL }), ...(agents.length > 0 && { agent }) },
      required: ['name', 'input', ...(isDynamic ? [] : ['agent'])],
      additionalProperties: false,
    },
    info: { type: 'system', name: CREATE_SUB_AGENT },
    run: { to: 'thread' },
  };
}
