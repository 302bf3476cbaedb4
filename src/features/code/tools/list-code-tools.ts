import { setImmediate as nextTurn } from 'node:timers/promises';
import { z } from 'zod';
import { jsonBytes } from '../../../core/text.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import type { SystemTool } from '../../../tools/system-tool.ts';
import { mayCall, type Toolset } from '../../../tools/toolset.ts';
import { listedSavedTools, pathOf, useInCode, type SavedToolSources } from '../saved-tools/listed-saved-tools.ts';
import { mayHaveSavedTools, type SavedToolAbout } from '../saved-tools/saved-tool.ts';
import { categoriesOf, descriptionOf, listedTools, type ListedTool } from './listed-tools.ts';

/** A longer list would be cut for the model; further tools are found by a search. */
const MAX_RESULT_BYTES = 32 * 1024;

/** The maximum characters of a line. */
const MAX_LINE_LENGTH = 200;

/** The maximum number of an agent's servers, each of which is a category. */
const MAX_CATEGORIES = 50;
const MAX_CATEGORY_LENGTH = 200;

const category = z.string().max(MAX_CATEGORY_LENGTH);
const input = z.strictObject({
  category: z
    .union([category, z.array(category).min(1).max(MAX_CATEGORIES)])
    .optional()
    .describe('One category, or several. Default: which categories there are.'),
});

/** Lists the tools that code can call, for the model: the length of a prompt with all of them would be unbounded. */
export const LIST_CODE_TOOLS: SystemTool<{ catalog: SavedToolSources }> = {
  name: 'list_code_tools',
  offer: (spec) => {
    if (serversOf(spec).length === 0 && !mayHaveSavedTools(spec)) return undefined;
    const { $schema: _, ...parameters } = z.toJSONSchema(input);
    return {
      description:
        'List the tools that your code can call, of servers and those that were saved: the categories, or the tools of a ' +
        'category, each with the line that imports it, its signature, and the path of its source, which read_file shows.',
      parameters,
    };
  },
  effect: 'retry',
  run: async ({ arguments: args }, { spec, scope, loadToolset }, { catalog }) => {
    const [toolset, saved] = await Promise.all([loadToolset(), listedSavedTools(catalog, spec, scope)]);
    const text = await codeToolList({ ...toolset, saved }, spec, args);
    return { status: 'result', isError: false, content: [{ type: 'text', text }] };
  },
};

/**
 * The list for the model. `args`: the arguments as the model wrote them.
 * @throws SyntaxError or z.ZodError if the arguments do not fit the schema of the tool
 */
export async function codeToolList(
  { tools, unavailable, saved }: Pick<Toolset, 'tools' | 'unavailable'> & { saved: readonly SavedToolAbout[] },
  spec: AgentSpec,
  args: string,
): Promise<string> {
  const { category: wanted } = input.parse(JSON.parse(args));
  const listed = listedTools(tools.values(), saved);
  const [savedCounts, counts] = [categoriesOf(saved), categoriesOf(listed)];
  const servers = new Set(serversOf(spec));
  const missing = unavailable
    .filter(({ server }) => servers.has(server))
    .map(({ server, reason }) => `The tools of ${server} cannot be listed now: ${reason}`);
  if (wanted === undefined) {
    const categories = [
      ...[...savedCounts].map(([name, count]) => ({ category: name, tools: count, source: 'saved' })),
      ...[...counts].map(([name, count]) => ({ category: name, tools: count })),
    ];
    return JSON.stringify({ categories, ...noteOf(missing) });
  }
  const names = new Set([wanted].flat());
  const known = [...new Set([...savedCounts.keys(), ...counts.keys()])];
  const unknown = [...names].filter((name) => !known.includes(name));
  const entries = [...saved.map(savedEntry), ...listed.map(entryOf)].filter(({ category: own }) => names.has(own));
  const { shown, left } = await fitting(entries);
  const notes = [
    ...(unknown.length > 0
      ? [`There is no category ${unknown.join(', ')}; the categories are: ${known.join(', ')}.`]
      : []),
    ...(left > 0 ? [`${left} more tools do not fit${servers.size > 0 ? ': search_tools finds them' : ''}.`] : []),
    ...missing,
  ];
  return JSON.stringify({ tools: shown, ...noteOf(notes) });
}

/** The servers whose tools code may call. */
function serversOf({ mcp_servers: servers }: AgentSpec): string[] {
  return (servers ?? []).filter((server) => mayCall('code', server)).map(({ name }) => name);
}

/** A tool in the list. Its entry is made on demand, since this may take a while. */
interface ListEntry {
  category: string;
  make: () => object;
}

function savedEntry(tool: SavedToolAbout): ListEntry {
  const { description, ...use } = useInCode(tool);
  const make = () => ({ ...use, description: firstLine(description), path: pathOf(tool) });
  return { category: tool.category, make };
}

function entryOf(listed: ListedTool): ListEntry {
  const { import: line, path, category: own } = listed;
  const make = () => {
    const { signature } = listed.generate();
    return { import: line, signature, description: firstLine(descriptionOf(listed)), path };
  };
  return { category: own, make };
}

/** The entries that fit. Each is made in its own turn of the event loop, since hostile schemas take milliseconds. */
async function fitting(entries: readonly ListEntry[]): Promise<{ shown: object[]; left: number }> {
  const shown: object[] = [];
  let bytes = 0;
  for (const { make } of entries) {
    const entry = make();
    bytes += jsonBytes(JSON.stringify(entry));
    if (bytes > MAX_RESULT_BYTES) break;
    shown.push(entry);
    await nextTurn();
  }
  return { shown, left: entries.length - shown.length };
}

function firstLine(description: string): string {
  const [line = ''] = description.split(/[\n\r\v\f\u0085\u2028\u2029]/, 1);
  return line.length > MAX_LINE_LENGTH ? `${line.slice(0, MAX_LINE_LENGTH).toWellFormed()}…` : line;
}

function noteOf(notes: string[]): { note?: string } {
  return notes.length > 0 ? { note: notes.join(' ') } : {};
}
