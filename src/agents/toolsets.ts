import type { McpPool, McpServerTools } from '../tools/mcp-pool.ts';
import type { McpEndpoint, McpRegistry } from '../tools/registry.ts';
import { selectTools } from '../tools/selectors.ts';
import type { AgentSpec, McpServer } from '../wire/agent-spec.ts';
import { ASK_USER_QUESTION } from './system-tools.ts';
import type { AgentTool, Toolset } from './toolset.ts';

/** What model providers take as a tool's name. */
const MAX_NAME_LENGTH = 64;

/** A tool of a server, before it has a name of its own among all of them. */
interface ServerTool extends AgentTool {
  server: string;
}

/** Puts together the tools of agents, from what their servers offer now. */
export class Toolsets {
  readonly #registry: McpRegistry;
  readonly #pool: McpPool;

  constructor({ registry, pool }: { registry: McpRegistry; pool: McpPool }) {
    this.#registry = registry;
    this.#pool = pool;
  }

  /** Servers that can't be reached are part of the result; only `signal` makes this throw. */
  async load(spec: AgentSpec, signal: AbortSignal): Promise<Toolset> {
    const servers = await Promise.all((spec.mcp_servers ?? []).map((server) => this.#server(server, signal)));
    signal.throwIfAborted();
    return {
      tools: named(
        [...systemTools(spec), ...clientTools(spec)],
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
    signal: AbortSignal,
  ): Promise<Pick<Toolset, 'unavailable'> & { connected: Toolset['servers']; tools: ServerTool[] }> {
    const endpoint = this.#registry.resolve(spec);
    const unavailable = (reason: string) => ({
      connected: [],
      tools: [],
      unavailable: [{ server: spec.name, reason }],
    });
    if (!endpoint) return unavailable('it is not registered on this server');
    let offered: McpServerTools;
    try {
      offered = await this.#pool.tools(endpoint, signal);
    } catch (error) {
      return unavailable(error instanceof Error ? error.message : String(error));
    }
    const { id, name, sessionId, transport } = offered;
    const tools = selectTools(spec, offered.tools, endpoint.idempotentTools).map(
      ({ tool, approval, effect }): ServerTool => ({
        server: spec.name,
        name: tool.name,
        description: tool.description ?? tool.title ?? '',
        parameters: tool.inputSchema,
        info: { type: 'mcp', serverId: id, serverName: name, name: tool.name },
        run: { to: 'server', effect, approval },
      }),
    );
    return { connected: [{ id, name, sessionId, transport }], tools, unavailable: [] };
  }
}

function systemTools(spec: AgentSpec): AgentTool[] {
  return spec.config?.ask_user_questions?.enabled === false ? [] : [ASK_USER_QUESTION];
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

/**
 * Gives each tool a name that a model can call. Names of servers' tools that are not unique, or taken by our own, get
 * their server's name in front, so that they do not depend on the order of the servers.
 */
function named(own: AgentTool[], servers: ServerTool[]): Map<string, AgentTool> {
  const tools = new Map(own.map((tool) => [tool.name, tool]));
  const uses = new Map<string, number>();
  for (const { name } of servers) uses.set(callable(name), (uses.get(callable(name)) ?? 0) + 1);
  for (const { server, ...tool } of servers) {
    const short = callable(tool.name);
    const isUnique = uses.get(short) === 1 && !tools.has(short);
    const name = freeName(isUnique ? short : callable(`${server}_${tool.name}`), tools);
    tools.set(name, { ...tool, name });
  }
  return tools;
}

function callable(name: string): string {
  return name.replaceAll(/[^a-zA-Z0-9_-]/g, '_').slice(0, MAX_NAME_LENGTH);
}

function freeName(name: string, taken: Map<string, AgentTool>): string {
  let free = name;
  for (let n = 2; taken.has(free); n++) free = `${name.slice(0, MAX_NAME_LENGTH - 4)}_${n}`;
  return free;
}
