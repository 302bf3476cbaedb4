import { calledBy, mayCall, type AgentTool } from '../../../tools/toolset.ts';
import { codeModules, type CodeModules } from '../tools/code-modules.ts';
import { callableTools } from '../tools/listed-tools.ts';
import type { ToolScope } from '../../../core/history.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import type { McpTools } from '../../../tools/mcp-tools.ts';

/** The services that load the tools of code. */
export interface CodeToolSources {
  mcpTools: Pick<McpTools, 'tools'>;
  /** Names that MCP tools cannot have for the model. */
  takenNames: (spec: AgentSpec) => ReadonlySet<string>;
}

/** The MCP tools that an agent's code may call, with the names that they would have for the model. */
export interface CodeToolset {
  tools: readonly AgentTool[];
  /** The Python modules by which code calls them. `parsers`: see `codeModules`. */
  modules: (parsers: ReadonlySet<string>) => CodeModules;
  /** The tool of a server, by the original names of both. */
  find: (server: string, tool: string) => AgentTool | undefined;
}

export async function loadCodeToolset(
  { mcpTools, takenNames }: CodeToolSources,
  { spec, scope, signal }: { spec: AgentSpec; scope: ToolScope; signal: AbortSignal },
): Promise<CodeToolset> {
  const called = (spec.mcp_servers ?? []).filter((server) => mayCall('code', server)).map(({ name }) => name);
  const none = { named: () => [], unavailable: [] };
  const { named, unavailable } = called.length === 0 ? none : await mcpTools.tools(spec, scope, signal);
  const tools = named(takenNames(spec)).filter((tool) => calledBy('code', tool));
  const missing = unavailable.filter(({ server }) => called.includes(server));
  const byName = new Map(tools.map((tool) => [keyOf(tool), tool]));
  return {
    tools,
    modules: (parsers) => codeModules(tools.flatMap(callableTools), missing, parsers),
    find: (server, tool) => byName.get(JSON.stringify([server, tool])),
  };
}

function keyOf({ info, name }: AgentTool): string {
  return JSON.stringify(info.type === 'mcp' ? [info.serverName, info.name] : ['', name]);
}
