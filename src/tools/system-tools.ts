import type { ToolCall } from '../core/records/calls.ts';
import type { CallOutcome } from '../mcp/call-outcome.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { SystemTool } from './system-tool.ts';
import type { KindTools, RunOptions, ToolKind } from './tool-kind.ts';
import type { AgentTool } from './toolset.ts';

const QUESTION = {
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
};

/** Lets the model ask the user a question. The client answers the call, as it does for its own tools. */
export const ASK_USER_QUESTION: SystemTool = {
  name: 'ask_user_question',
  offer: ({ config }) => (config?.ask_user_questions?.enabled === false ? undefined : QUESTION),
  answeredBy: 'client',
};

/** The name that the web search of a provider has for its models. */
const WEB_SEARCH = 'web_search';

/** The names that tools of the client cannot have, for an agent that has those of `tools` that are offered to it. */
export function reservedNames(spec: AgentSpec, tools: readonly SystemTool<never>[]): Set<string> {
  const names = tools.filter((tool) => tool.offer(spec)).map(({ name }) => name);
  return new Set([ASK_USER_QUESTION.name, ...names, ...(spec.webSearch ? [WEB_SEARCH] : [])]);
}

/** The names of an agent's tools that belong to no MCP server. The tools of servers get other names. */
export function takenNames(spec: AgentSpec, tools: readonly SystemTool<never>[]): Set<string> {
  const own = tools.filter((tool) => tool.offer(spec)).map(({ name }) => name);
  return new Set([...own, ...clientTools(spec).map(({ name }) => name)]);
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

/** The tools that belong to no MCP server: those of this server, and the client's, whose calls the client answers. */
export class SystemTools<Services> implements ToolKind {
  readonly type = 'system';
  /** In the order in which agents have them: they depend on the agent alone, not on what its servers currently offer. */
  readonly #tools: readonly SystemTool<Services>[];
  readonly #services: Services;

  /** @param services what the tools are routed and run with */
  constructor(tools: readonly SystemTool<Services>[], services: Services) {
    this.#tools = tools;
    this.#services = services;
  }

  tools(spec: AgentSpec): Promise<KindTools> {
    const own = this.#tools.flatMap((tool): AgentTool[] => {
      const { name } = tool;
      const offered = tool.offer(spec);
      return offered ? [{ name, ...offered, info: { type: 'system', name }, run: this.#runOf(tool, spec) }] : [];
    });
    const tools = [...own, ...clientTools(spec)];
    return Promise.resolve({ named: () => tools, servers: [], unavailable: [] });
  }

  async run(call: ToolCall, options: RunOptions): Promise<CallOutcome> {
    const tool = this.#tools.find(({ name }) => name === call.info.name);
    if (!tool || !('run' in tool)) throw new Error('only the client can run this tool.');
    return tool.run(call, options, this.#services);
  }

  #runOf(tool: SystemTool<Services>, spec: AgentSpec): AgentTool['run'] {
    if ('run' in tool) return { to: 'server', effect: tool.effect, approval: false };
    if (!('inSandbox' in tool || 'route' in tool)) return { to: 'client' };
    const decision = tool.decision?.(spec);
    const decided = decision && {
      approval: decision === 'ask',
      ...(decision === 'deny' && { isDenied: true as const }),
    };
    if ('route' in tool) {
      return { to: 'route', isOffered: tool.isOffered, route: (call) => tool.route(call, this.#services), ...decided };
    }
    return { to: 'server', ...tool.inSandbox, inSandbox: true, approval: true, ...decided };
  }
}
