import type { ToolScope } from '../core/history.ts';
import type { AgentSpec, ToolSource } from '../spec/agent-spec.ts';
import type { ToolKinds } from './tool-kind.ts';
import type { AgentTool, Toolset } from './toolset.ts';

/** Loads the toolsets of agents: their tools of all kinds, as they are currently offered. */
export class ToolsetLoader {
  readonly #kinds: ToolKinds;

  constructor(kinds: ToolKinds) {
    this.#kinds = kinds;
  }

  /** Unreachable servers are part of the result; throws only if `signal` is aborted. */
  async load(spec: AgentSpec, scope: ToolScope, signal: AbortSignal): Promise<Toolset> {
    const parts = await Promise.all(Object.values(this.#kinds).map((kind) => kind.tools(spec, scope, signal)));
    const tools = new Map<string, AgentTool>();
    for (const { named } of parts) {
      // A server may list a tool twice: the first one counts.
      for (const tool of named(new Set(tools.keys()))) if (!tools.has(tool.name)) tools.set(tool.name, tool);
    }
    return {
      tools: inOrder(tools, spec),
      servers: parts.flatMap(({ servers }) => servers),
      unavailable: parts.flatMap(({ unavailable }) => unavailable),
      instructions: parts.flatMap(({ instructions = [] }) => instructions),
    };
  }
}

function inOrder(
  tools: ReadonlyMap<string, AgentTool>,
  { toolOrder: order }: AgentSpec,
): ReadonlyMap<string, AgentTool> {
  if (!order) return tools;
  const key = (source: ToolSource): string => Object.entries(source).join();
  const places = new Map(order.map((source, i) => [key(source), i]));
  const positionOf = ({ name, info, run }: AgentTool): number => {
    const source = info.type === 'mcp' ? { server: info.serverName } : run.to === 'client' && { tool: name };
    return source ? (places.get(key(source)) ?? order.length) : -1;
  };
  return new Map([...tools].toSorted(([, a], [, b]) => positionOf(a) - positionOf(b)));
}
