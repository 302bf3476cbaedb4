import { toolKey } from '../core/transcript.ts';
import type { FoundTool, McpInitialized, ToolInfo } from '../core/records.ts';
import type { OfferedTool } from '../models/provider.ts';

/** A tool that an agent has. */
export interface AgentTool extends OfferedTool {
  info: ToolInfo;
  run: { to: 'client' } | { to: 'server'; effect: 'retry' | 'once'; approval: boolean };
}

/** The tools of an agent, as its servers offer them now. */
export interface Toolset {
  /** By the names under which the model calls them. */
  tools: ReadonlyMap<string, AgentTool>;
  servers: McpInitialized['servers'];
  /** Servers that can't be reached, and why. */
  unavailable: { server: string; reason: string }[];
}

/** What a model is offered that has found these tools: all that are not deferred, and the found ones behind them. */
export function offeredTools({ tools }: Toolset, found: FoundTool[]): AgentTool[] {
  const all = [...tools.values()];
  const deferred = new Map(all.filter(isDeferred).map((tool) => [keyOf(tool), tool]));
  const offered = found.map((one) => deferred.get(toolKey(one))).filter((tool) => tool !== undefined);
  return [...all.filter((tool) => !isDeferred(tool)), ...offered];
}

export function isDeferred({ info }: AgentTool): boolean {
  return info.type === 'mcp' && info.deferred === true;
}

function keyOf({ info }: AgentTool): string | undefined {
  return info.type === 'mcp' ? toolKey({ server: info.serverName, name: info.name }) : undefined;
}
