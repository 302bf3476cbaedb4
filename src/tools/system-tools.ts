import type { ToolCall } from '../core/records.ts';
import type { CallOutcome } from '../mcp/call-outcome.ts';
import type { Skills } from '../skills/skills.ts';
import { cutsResults, type AgentSpec } from '../spec/agent-spec.ts';
import { createSubAgent } from './create-sub-agent.ts';
import { delegate } from './delegate.ts';
import { READ_SKILL, readSkill, skillResult } from './read-skill.ts';
import { READ_TOOL_RESPONSE } from './read-tool-response.ts';
import { SEARCH_TOOLS, searchResult, searchTools } from './search-tools.ts';
import { mayDefer } from './selectors.ts';
import type { KindTools, RunOptions, ToolKind } from './tool-kind.ts';
import type { AgentTool } from './toolset.ts';

/** Lets the model ask the user a question. The client answers the call, as it does for its own tools. */
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

/** The server's own tools for an agent. They depend on the agent alone, not on what its MCP servers currently offer. */
export function systemTools(spec: AgentSpec): AgentTool[] {
  const deferring = (spec.mcp_servers ?? []).filter(mayDefer).map(({ name }) => name);
  const subAgents = createSubAgent(spec);
  const delegates = delegate(spec);
  const skills = readSkill(spec);
  return [
    ...(spec.config?.ask_user_questions?.enabled === false ? [] : [ASK_USER_QUESTION]),
    ...(deferring.length > 0 ? [searchTools(deferring)] : []),
    ...(subAgents ? [subAgents] : []),
    ...(delegates ? [delegates] : []),
    ...(skills ? [skills] : []),
    ...(cutsResults(spec) ? [READ_TOOL_RESPONSE] : []),
  ];
}

/** The name that the web search of a provider has for its models. */
const WEB_SEARCH = 'web_search';

/** The names that tools of the client cannot have. */
export function reservedNames(spec: AgentSpec): Set<string> {
  const names = [ASK_USER_QUESTION, ...systemTools(spec)].map(({ name }) => name);
  return new Set(spec.webSearch ? [...names, WEB_SEARCH] : names);
}

function clientTools(spec: AgentSpec): AgentTool[] {
  return (spec.client_tools ?? []).map(({ name, description, input_schema: parameters }) => ({
    name,
    description: description ?? '',
    parameters,
    info: { type: 'system', name },
    run: { to: 'client' },
  }));
}

export interface SystemToolsOptions {
  skills: Pick<Skills, 'read'>;
}

/** The tools that belong to no MCP server: those of this server, and the client's, whose calls the client answers. */
export class SystemTools implements ToolKind {
  readonly type = 'system';
  readonly #skills: Pick<Skills, 'read'>;

  constructor({ skills }: SystemToolsOptions) {
    this.#skills = skills;
  }

  tools(spec: AgentSpec): Promise<KindTools> {
    const tools = [...systemTools(spec), ...clientTools(spec)];
    return Promise.resolve({ named: () => tools, servers: [], unavailable: [] });
  }

  async run({ info, arguments: args }: ToolCall, { spec, loadToolset }: RunOptions): Promise<CallOutcome> {
    if (info.name === READ_SKILL) return skillResult(this.#skills, spec, args);
    if (info.name !== SEARCH_TOOLS) throw new Error('only the client can run this tool.');
    const { text, foundTools } = searchResult(await loadToolset(), args);
    return { status: 'result', isError: false, content: [{ type: 'text', text }], foundTools };
  }
}
