import type { ToolInfo } from '../core/records.ts';
import { McpTools, type McpToolsOptions } from './mcp-tools.ts';
import { SystemTools, type SystemToolsOptions } from './system-tools.ts';
import type { ToolKind } from './tool-kind.ts';

/** The kind for each `ToolInfo.type`. If two kinds claim the same name for a tool, the earlier one keeps it. */
export type ToolKinds = Readonly<Record<ToolInfo['type'], ToolKind>>;

export function createToolKinds(options: McpToolsOptions & SystemToolsOptions): ToolKinds {
  return { system: new SystemTools(options), mcp: new McpTools(options) };
}
