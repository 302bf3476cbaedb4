import { codeActionsOf } from '../../../spec/code-actions.ts';
import type { SearchCode } from '../../../tools/search-tools.ts';
import { importable, listedSavedTools, type SavedToolSources } from '../saved-tools/listed-saved-tools.ts';
import { addMeaning, type MeaningSources } from './add-meaning.ts';
import { usesInCode } from './listed-tools.ts';

/** What searches of agents that act in code read. */
export interface SearchSources extends MeaningSources {
  catalog: SavedToolSources;
}

/** What a search finds for the code of an agent: its saved tools, and the tools of servers that it may call. */
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
