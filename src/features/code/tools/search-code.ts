import type { SearchCode } from '../../../tools/search-tools.ts';
import { importable, listedSavedTools, type SavedToolSources } from '../saved-tools/listed-saved-tools.ts';
import { usesInCode } from './listed-tools.ts';

/** What a search finds for the code of an agent: its saved tools, and the tools of servers that it may call. */
export const searchCode: SearchCode<{ catalog: SavedToolSources }> = async ({ spec, scope }, { catalog }) => {
  const saved = await listedSavedTools(catalog, spec, scope);
  return { uses: (tools) => usesInCode(tools, saved), others: saved.map(importable) };
};
