import { hashOf } from '../../../lib/hash.ts';
import { docstring } from '../tools/python-literals.ts';
import type { SavedTools } from './saved-tool-rows.ts';
import {
  apiOf,
  SAVED_PACKAGE,
  type SavedTool,
  type SavedToolAbout,
  type SavedToolName,
  type SavedToolOwner,
} from './saved-tool.ts';

/** The saved tools that code imports. */
export interface SavedModules {
  tools: SavedToolAbout[];
  /** A hash of the sources. */
  hash: string;
  /** Their sources, by paths such as `gentools/reports/weekly/api.py`: read only if they have changed. */
  files: () => Promise<Map<string, string>>;
}

/** The current modules of an owner's saved tools. */
export async function savedModules(
  savedTools: Pick<SavedTools, 'list' | 'get'>,
  place: SavedToolOwner | undefined,
): Promise<SavedModules> {
  const tools = place ? await savedTools.list(place) : [];
  return {
    tools,
    hash: hashOf(tools.map(({ category, name, hash }) => [category, name, hash])),
    files: async () => {
      const files = new Map<string, string>();
      for (const tool of tools) {
        const saved = place && (await savedTools.get(place, tool));
        if (saved) for (const [file, source] of filesOf(saved)) files.set(file, source);
      }
      return files;
    },
  };
}

/** The modules of the parsers among saved tools. */
export function parsersAmong(tools: readonly SavedToolAbout[]): ReadonlySet<string> {
  return new Set(tools.flatMap((tool) => (tool.kind === 'parser' ? [apiOf(tool)] : [])));
}

/** The module of the parser for the text of an MCP tool; undefined if there is none. */
export function parserFor(tool: SavedToolName, parsers: ReadonlySet<string>): string | undefined {
  const module = apiOf(tool);
  return parsers.has(module) ? module : undefined;
}

/** The path of a file of a saved tool, in the folder of the tools. */
export function savedModulePath({ category, name }: SavedToolName, file: 'api' | 'impl' | '__init__') {
  return `${SAVED_PACKAGE}/${category}/${name}/${file}.py`;
}

function filesOf(tool: SavedTool): [file: string, source: string][] {
  const { category, description, api, impl } = tool;
  return [
    [`${SAVED_PACKAGE}/${category}/__init__.py`, ''],
    [savedModulePath(tool, '__init__'), `${docstring(description, '')}\n`],
    [savedModulePath(tool, 'api'), api],
    ...(typeof impl === 'string' ? [[savedModulePath(tool, 'impl'), impl] as [string, string]] : []),
  ];
}
