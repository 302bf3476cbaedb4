import { McpUnavailableError, type McpPool, type McpServerTools } from '../tools/mcp-pool.ts';
import type { McpEndpoint, McpRegistry } from '../tools/registry.ts';
import { selectTools } from '../tools/selectors.ts';
import type { ToolScope } from '../log/history.ts';
import type { AgentSpec, McpServer } from '../wire/agent-spec.ts';
import { systemTools } from './system-tools.ts';
import { toolNames } from './tool-names.ts';
import type { AgentTool, Toolset } from './toolset.ts';

/** Puts together the tools of agents, from what their servers offer now. */
export class Toolsets {
  readonly #registry: McpRegistry;
  readonly #pool: McpPool;

  constructor({ registry, pool }: { registry: McpRegistry; pool: McpPool }) {
    this.#registry = registry;
    this.#pool = pool;
  }

  /** Servers that can't be reached are part of the result; only `signal` makes this throw. */
  async load(spec: AgentSpec, scope: ToolScope, signal: AbortSignal): Promise<Toolset> {
    const servers = await Promise.all((spec.mcp_servers ?? []).map((server) => this.#server(server, scope, signal)));
    signal.throwIfAborted();
    return {
      tools: named(
        spec,
        servers.flatMap(({ tools }) => tools),
      ),
      servers: servers.flatMap(({ connected }) => connected),
      unavailable: servers.flatMap(({ unavailable }) => unavailable),
    };
  }

  /** Where the server of an agent is that has this id; undefined if the agent has none. */
  endpoint(spec: AgentSpec, serverId: string): McpEndpoint | undefined {
    return (spec.mcp_servers ?? [])
      .map((server) => this.#registry.resolve(server))
      .find((endpoint) => endpoint?.id === serverId);
  }

  async #server(
    spec: McpServer,
    scope: ToolScope,
    signal: AbortSignal,
  ): Promise<Pick<Toolset, 'unavailable'> & { connected: Toolset['servers']; tools: AgentTool[] }> {
    const endpoint = this.#registry.resolve(spec);
    const unavailable = (reason: string) => ({
      connected: [],
      tools: [],
      unavailable: [{ server: spec.name, reason }],
    });
    if (!endpoint) return unavailable('it is not registered on this server');
    let offered: McpServerTools;
    try {
      offered = await this.#pool.tools(endpoint, scope, signal);
    } catch (error) {
      if (!(error instanceof McpUnavailableError)) throw error;
      return unavailable(`it ${error.reason}`);
    }
    const { id, name, sessionId, transport } = offered;
    const tools = selectTools(spec, offered.tools, endpoint.idempotentTools).map(
      ({ tool, approval, effect, deferred }): AgentTool => ({
        name: tool.name,
        description: tool.description ?? tool.title ?? '',
        parameters: tool.inputSchema,
        info: { type: 'mcp', serverId: id, serverName: name, name: tool.name, ...(deferred && { deferred }) },
        run: { to: 'server', effect, approval },
      }),
    );
    return { connected: [{ id, name, sessionId, transport }], tools, unavailable: [] };
  }
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

/** Gives each tool the name by which the model calls it. */
function named(spec: AgentSpec, serverTools: AgentTool[]): Map<string, AgentTool> {
  const tools = new Map([...systemTools(spec), ...clientTools(spec)].map((tool) => [tool.name, tool]));
  const nameOf = toolNames(spec, new Set(tools.keys()));
  for (const tool of serverTools) {
    if (tool.info.type !== 'mcp') continue;
    const name = nameOf(tool.info.serverName, tool.info.name);
    // A server may list a tool twice.
    if (!tools.has(name)) tools.set(name, { ...tool, name });
  }
  return tools;
}
