import { calledBy, mayCall, type AgentTool } from '../../../tools/toolset.ts';
import { codeModules, type CodeModules, type UnavailableServer } from '../tools/code-modules.ts';
import { callableTools } from '../tools/listed-tools.ts';
import type { ToolScope } from '../../../core/history.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import type { McpTools } from '../../../tools/mcp-tools.ts';

/** The names that tools of servers cannot have for the model. */
type TakenNames = (spec: AgentSpec) => ReadonlySet<string>;

/** What the tools of code are found with. */
export interface CodeToolSources {
  mcpTools: Pick<McpTools, 'tools'>;
  takenNames: TakenNames;
}

/** The tools of an agent's servers that its code may call, by the names that its model would call them by. */
export class CodeToolset {
  readonly tools: readonly AgentTool[];
  readonly #byName: ReadonlyMap<string, AgentTool>;
  readonly #unavailable: readonly UnavailableServer[];

  private constructor(tools: readonly AgentTool[], unavailable: readonly UnavailableServer[]) {
    this.tools = tools;
    this.#unavailable = unavailable;
    this.#byName = new Map(tools.map((tool) => [keyOf(tool), tool]));
  }

  static async load(
    { mcpTools, takenNames }: CodeToolSources,
    { spec, scope, signal }: { spec: AgentSpec; scope: ToolScope; signal: AbortSignal },
  ): Promise<CodeToolset> {
    const called = (spec.mcp_servers ?? []).filter((server) => mayCall('code', server)).map(({ name }) => name);
    if (called.length === 0) return new CodeToolset([], []);
    const { named, unavailable } = await mcpTools.tools(spec, scope, signal);
    return new CodeToolset(
      named(takenNames(spec)).filter((tool) => calledBy('code', tool)),
      unavailable.filter(({ server }) => called.includes(server)),
    );
  }

  /** The Python modules by which code calls them. `parsers`: see `codeModules`. */
  modules(parsers: ReadonlySet<string>): CodeModules {
    return codeModules(this.tools.flatMap(callableTools), this.#unavailable, parsers);
  }

  /** The tool of a server, by the names that both have themselves. */
  find(server: string, tool: string): AgentTool | undefined {
    return this.#byName.get(JSON.stringify([server, tool]));
  }
}

function keyOf({ info, name }: AgentTool): string {
  return JSON.stringify(info.type === 'mcp' ? [info.serverName, info.name] : ['', name]);
}
