import { codeActionsOf } from '../../../spec/code-actions.ts';
import type { SearchCode } from '../../../tools/search-tools.ts';
import { importable, listedSavedTools, type SavedToolSources } from '../saved-tools/listed-saved-tools.ts';
import { addMeaning, type MeaningSources } from './add-meaning.ts';
import { usesInCode } from './listed-tools.ts';

/** The sources of searches by agents that act in code. */
export interface SearchSources extends MeaningSources {
  catalog: SavedToolSources;
}

/** The search for an agent's code: finds its saved tools, and the MCP tools that it may call. */
export const searchCode: SearchCode<SearchSources> = async ({ spec, scope, signal }, { catalog, ...sources }) => {
  const saved = await listedSavedTools(catalog, spec, scope);
  return {
    uses: (tools) => usesInCode(tools, saved),
    others: saved.map(importable),
    ...(codeActionsOf(spec)?.toolSearch === 'hybrid' && {
      improve: (ranking) => addMeaning(ranking, { ...sources, signal }),
    }),
  };
};
