import type { UseInCode } from '../../../tools/search-tools.ts';
import { argumentSchema, calledBy, type AgentTool } from '../../../tools/toolset.ts';
import { SANDBOX_FOLDERS } from '../kernel/bubblewrap.ts';
import type { SavedToolAbout } from '../saved-tools/saved-tool.ts';
import { parserFor, parsersAmong } from '../saved-tools/saved-modules.ts';
import { modulesOf, type ToolModule } from './code-modules.ts';
import { MAX_DESCRIPTION, toolModule, type CodeTool } from './tool-module.ts';

/** A tool that code may call, with the agent's form of it. */
interface CallableTool extends CodeTool {
  agentTool: AgentTool;
}

/** A tool that code may call, with its path, import and signature. */
export interface ListedTool extends ToolModule<CallableTool> {
  /** The path of its source for code and `read_file`. */
  path: string;
  /** The line that imports it. */
  import: string;
  /** Generates the module, which takes milliseconds for hostile schemas. */
  generate: () => { source: string; signature: string };
}

/**
 * The tools among those of an agent that its code may call, by category and name.
 * @param saved the saved tools of the code, among which are parsers
 */
export function listedTools(tools: Iterable<AgentTool>, saved: readonly SavedToolAbout[] = []): ListedTool[] {
  const callable = [...tools].flatMap((tool) => (calledBy('code', tool) ? callableTools(tool) : []));
  const parsers = parsersAmong(saved);
  return modulesOf(callable).map((module) => {
    const parser = parserFor(module, parsers);
    return {
      ...module,
      path: `${SANDBOX_FOLDERS.tools}/${module.file}`,
      import: `from ${module.module} import run, ${parser === undefined ? '' : 'run_parsed, '}Params`,
      generate: () => toolModule(module.tool, parser),
    };
  });
}

/** An MCP tool in the form from which its module is generated; empty for other tools. */
export function callableTools(tool: AgentTool): CallableTool[] {
  const { info, description, resultSchema: outputSchema } = tool;
  if (info.type !== 'mcp') return [];
  const inputSchema = argumentSchema(tool);
  return [{ server: info.serverName, name: info.name, description, inputSchema, outputSchema, agentTool: tool }];
}

/** The use of tools in code, for the results of a search. */
export function usesInCode(
  tools: Iterable<AgentTool>,
  saved: readonly SavedToolAbout[],
): Map<AgentTool, () => UseInCode> {
  return new Map(
    listedTools(tools, saved).map(({ tool, import: line, generate }) => [
      tool.agentTool,
      () => ({ import: line, signature: generate().signature }),
    ]),
  );
}

/** The number of tools in each category. */
export function categoriesOf(listed: readonly Pick<ListedTool, 'category'>[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { category } of listed) counts.set(category, (counts.get(category) ?? 0) + 1);
  return counts;
}

/** The server's description of a tool. */
export function descriptionOf({ tool }: ListedTool): string {
  return (tool.description ?? '').trim().slice(0, MAX_DESCRIPTION).toWellFormed();
}
