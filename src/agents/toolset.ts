import type { McpInitialized, ToolInfo } from '../log/records.ts';
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
