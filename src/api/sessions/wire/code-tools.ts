import { z } from 'zod';
import { pathOf, useInCode } from '../../../features/code/saved-tools/listed-saved-tools.ts';
import type { SavedTool, SavedToolAbout } from '../../../features/code/saved-tools/saved-tool.ts';
import { descriptionOf, type ListedTool } from '../../../features/code/tools/listed-tools.ts';

/** A tool that code may call (`docs/code-actions.md`, "Tools from code"). */
export const codeTool = z
  .object({
    source: z.enum(['saved', 'mcptools']).describe('saved: a saved tool; mcptools: a tool of an MCP server'),
    category: z.string().describe('for a tool of a server, the name of that in Python'),
    name: z.string().describe('its own in Python'),
    original_name: z.string().describe('as its server calls it; a saved tool has no other name'),
    import: z.string(),
    signature: z.string(),
    description: z.string().describe('as its server gives it, or as it was saved'),
    path: z.string().describe('of its source, in the sandbox'),
    has_result_schema: z
      .boolean()
      .describe('whether the server knows a schema of its result; of saved tools only those of parsers'),
    asks: z
      .boolean()
      .describe(
        'whether a call may wait for an approval now; conditions on its arguments may decide. False for a saved tool, whose own calls may ask',
      ),
    code: z.string().optional().describe('its source, with `source=true`; of a saved tool, its module `api`'),
  })
  .meta({ id: 'CodeTool' });

export type CodeToolResource = z.output<typeof codeTool>;

export function codeToolToResource(
  listed: ListedTool,
  { asks, withSource }: { asks: boolean; withSource: boolean },
): CodeToolResource {
  const { tool, category, name, path, import: line } = listed;
  const { source: code, signature } = listed.generate();
  return {
    source: 'mcptools',
    category,
    name,
    original_name: tool.name,
    import: line,
    signature,
    description: descriptionOf(listed),
    path,
    has_result_schema: tool.outputSchema !== undefined,
    asks,
    ...(withSource && { code }),
  };
}

export function savedCodeToolToResource(
  tool: SavedToolAbout,
  code: Pick<SavedTool, 'api'> | undefined,
): CodeToolResource {
  return {
    source: 'saved',
    category: tool.category,
    name: tool.name,
    original_name: tool.name,
    ...useInCode(tool),
    path: pathOf(tool),
    has_result_schema: tool.kind === 'parser',
    asks: false,
    ...(code && { code: code.api }),
  };
}
