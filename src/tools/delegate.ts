import { delegatesOf, type AgentSpec } from '../spec/agent-spec.ts';
import type { AgentTool } from './toolset.ts';

export const DELEGATE = 'delegate';

/** Lets the model give tasks to other agents. Undefined if the agent has no delegates. */
export function delegate(spec: AgentSpec): AgentTool | undefined {
  const delegates = delegatesOf(spec);
  if (delegates.length === 0) return undefined;
  const list = delegates.map(({ name, description }) => `- ${name}: ${description}`).join('\n');
  return {
    name: DELEGATE,
    description:
      'Give a task to another agent, which works on it by itself, and get its answer as the result. ' +
      `Agents that get tasks in one message work in parallel. The agents are:\n${list}`,
    parameters: {
      type: 'object',
      properties: {
        agent: { type: 'string', enum: delegates.map(({ name }) => name) },
        task: {
          type: 'string',
          minLength: 1,
          description: 'The task, complete in itself: the agent does not see this conversation.',
        },
      },
      required: ['agent', 'task'],
      additionalProperties: false,
    },
    info: { type: 'system', name: DELEGATE },
    run: { to: 'session' },
  };
}
