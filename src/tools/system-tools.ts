import { mayDefer } from './selectors.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { searchTools } from './search-tools.ts';
import type { AgentTool } from './toolset.ts';

/** Lets the model ask; whoever uses the session answers, as with any tool of the client's. */
export const ASK_USER_QUESTION: AgentTool = {
  name: 'ask_user_question',
  description:
    'Ask the user a question when you need a decision or a fact that only they have. Offer options if you can.',
  parameters: {
    type: 'object',
    properties: {
      question: { type: 'string', description: 'The question, complete in itself.' },
      options: { type: 'array', items: { type: 'string' }, maxItems: 5, description: 'Answers to choose from.' },
    },
    required: ['question'],
    additionalProperties: false,
  },
  info: { type: 'system', name: 'ask_user_question' },
  run: { to: 'client' },
};

/** The tools that an agent has from us. They follow from the agent alone, not from what its servers offer now. */
export function systemTools(spec: AgentSpec): AgentTool[] {
  const deferring = (spec.mcp_servers ?? []).filter(mayDefer).map(({ name }) => name);
  return [
    ...(spec.config?.ask_user_questions?.enabled === false ? [] : [ASK_USER_QUESTION]),
    ...(deferring.length > 0 ? [searchTools(deferring)] : []),
  ];
}
