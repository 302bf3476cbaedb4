import type { ToolScope } from '../core/history.ts';
import type { ToolInfo } from '../core/records.ts';
import { McpUnavailableError, type McpPool, type McpServerTools } from '../mcp/pool.ts';
import type { McpEndpoint, McpRegistry } from '../mcp/registry.ts';
import { isListed, selectTools } from './selectors.ts';
import { approvalFloor, mayUse } from '../mcp/server-policy.ts';
import type { AgentSpec, McpServer } from '../spec/agent-spec.ts';
import { systemTools } from './system-tools.ts';
import { toolNames } from './tool-names.ts';
import type { AgentTool, Toolset } from './toolset.ts';

const CLOSED = 'is not open to the drafts of this user';

/** Puts together the tools of agents, from what their servers offer now. */
export class ToolsetLoader {
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

  /**
   * Where a tool of an agent is called; undefined if the agent has no such server. The operator's policy is applied
   * again, since the call may have waited for its approval while that has changed.
   * @throws an Error that says why the tool may not be called, McpUnavailableError, or the reason of the signal
   */
  async endpoint(
    spec: AgentSpec,
    scope: ToolScope,
    { serverId, name }: Extract<ToolInfo, { type: 'mcp' }>,
    signal: AbortSignal,
  ): Promise<McpEndpoint | undefined> {
    for (const server of spec.mcp_servers ?? []) {
      const endpoint = this.#registry.resolve(server);
      if (endpoint?.id !== serverId) continue;
      const policy = this.#registry.policy(server);
      if (!mayUse(policy, scope.owner)) throw new Error(`its server ${CLOSED}`);
      // Only then is it for the tool's annotations to say.
      if (!['@all', name].some((selector) => policy.tools.includes(selector))) {
        const { tools } = await this.#pool.tools(endpoint, scope, signal);
        const isAllowed = tools.some((tool) => tool.name === name && isListed(tool, policy.tools));
        if (!isAllowed) throw new Error('the operator of this server does not allow this tool.');
      }
      return endpoint;
    }
    return undefined;
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
    const policy = this.#registry.policy(spec);
    if (!mayUse(policy, scope.owner)) return unavailable(`it ${CLOSED}`);
    let offered: McpServerTools;
    try {
      offered = await this.#pool.tools(endpoint, scope, signal);
    } catch (error) {
      if (!(error instanceof McpUnavailableError)) throw error;
      return unavailable(`it ${error.reason}`);
    }
    const { id, name, sessionId, transport } = offered;
    const { idempotentTools } = endpoint;
    const limits = { idempotentTools, allowed: policy.tools, floor: approvalFloor(policy, scope.owner) };
    const tools = selectTools(spec, offered.tools, limits).map(({ tool, approval, effect, deferred }): AgentTool => ({
      name: tool.name,
      description: tool.description ?? tool.title ?? '',
      parameters: tool.inputSchema,
      info: { type: 'mcp', serverId: id, serverName: name, name: tool.name, ...(deferred && { deferred }) },
      run: { to: 'server', effect, approval },
    }));
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
