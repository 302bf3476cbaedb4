import type { Sessions } from '../../../catalog/sessions.ts';
import type { ToolScope } from '../../../core/history.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import { rankTools } from '../../../tools/rank-tools.ts';
import type { ImportableTool, UseInCode } from '../../../tools/search-tools.ts';
import { SANDBOX_FOLDERS } from '../kernel/bubblewrap.ts';
import type { SavedTools } from './saved-tool-rows.ts';
import { importOf, mayHaveSavedTools, savedToolsOf, type SavedToolAbout } from './saved-tool.ts';
import { savedModulePath } from './saved-modules.ts';

/** The stores with the saved tools of a session. */
export interface SavedToolSources {
  sessions: Pick<Sessions, 'get'>;
  savedTools: Pick<SavedTools, 'list'>;
}

/** The saved tools that the code of a session can import, by category and name. */
export async function listedSavedTools(
  { sessions, savedTools }: SavedToolSources,
  spec: AgentSpec,
  { sessionId }: Pick<ToolScope, 'sessionId'>,
): Promise<SavedToolAbout[]> {
  if (!mayHaveSavedTools(spec)) return [];
  const session = await sessions.get(sessionId);
  const place = session && savedToolsOf(session, spec);
  return place ? savedTools.list(place) : [];
}

/** The tools that match a query, best first. */
export async function matchingSavedTools(tools: readonly SavedToolAbout[], query: string): Promise<SavedToolAbout[]> {
  const ranked = tools.map((tool) => ({ ...importable(tool), tool }));
  return (await rankTools(ranked, query)).map(({ tool }) => tool);
}

/** A saved tool for a search, in which its category is ranked as its server. */
export function importable(tool: SavedToolAbout): ImportableTool {
  const { name, category } = tool;
  return { name, info: { type: 'mcp', serverId: '', serverName: category, name }, parameters: {}, ...useInCode(tool) };
}

/** How code calls a saved tool. */
export function useInCode(tool: SavedToolAbout): UseInCode & { description: string } {
  return { import: importOf(tool), signature: tool.signature, description: tool.description };
}

/** The path of the interface of a saved tool, for code and `read_file`. */
export function pathOf(tool: SavedToolAbout): string {
  return `${SANDBOX_FOLDERS.tools}/${savedModulePath(tool, 'api')}`;
}
