import { z } from 'zod';
import type { FoundTool } from '../core/records/results.ts';
import { truncateMiddle, jsonBytes } from '../core/text.ts';
import type { RunOptions } from './tool-kind.ts';
import { rankTools, type RankedTool } from './rank-tools.ts';
import { mayDefer } from './selectors.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { SystemTool } from './system-tool.ts';
import { calledBy, isDeferred, mayCall, type AgentTool, type Toolset } from './toolset.ts';

const DEFAULT_LIMIT = 5;
const MAX_LIMIT = 20;

/** Far below the size at which a result is cut for the model, because half a schema is useless. */
const MAX_RESULT_BYTES = 32 * 1024;
const MAX_DESCRIPTION_BYTES = 2 * 1024;
/** A larger schema is omitted; the model gets it when the tool is offered. */
const MAX_SCHEMA_BYTES = 8 * 1024;

/** The tools for the code of an agent. Features provide them. */
export interface SearchedCode {
  /** How code calls those of `tools` that it may call. */
  uses: (tools: Iterable<AgentTool>) => ReadonlyMap<AgentTool, () => UseInCode>;
  /** Other tools that it can import: in the ranking by words, they precede the tools of servers. */
  others: ImportableTool[];
  /** Improves the ranking by words, for agents with this option. `tools`: all that are searched. */
  improve?: <T extends RankedTool>(ranking: { query: string; tools: T[]; byWords: T[] }) => Promise<T[]>;
}

/** Finds the tools for the code of an agent. */
export type SearchCode<Services> = (
  call: Pick<RunOptions, 'spec' | 'scope' | 'signal'>,
  services: Services,
) => Promise<SearchedCode>;

export interface UseInCode {
  /** The line that imports the tool. */
  import: string;
  signature: string;
}

/** A tool that code can import although it belongs to no server. */
export type ImportableTool = RankedTool & UseInCode;

/** Lets the model search for deferred tools, and for those of its code. */
export function searchTools<Services>(searchCode: SearchCode<Services>): SystemTool<Services> {
  return {
    name: 'search_tools',
    offer: (spec) => {
      const description = aboutSearch(spec);
      return description === undefined ? undefined : { description, parameters: PARAMETERS };
    },
    effect: 'retry',
    run: async ({ arguments: args }, { loadToolset, ...call }, services) => {
      const [toolset, code] = await Promise.all([loadToolset(), searchCode(call, services)]);
      const { text, foundTools } = await searchResult(toolset, args, code);
      return { status: 'result', isError: false, content: [{ type: 'text', text }], foundTools };
    },
  };
}

/** Depends on the agent alone. Undefined if there is nothing to search for. */
function aboutSearch({ mcp_servers: servers }: AgentSpec): string | undefined {
  const all = servers ?? [];
  const deferred = all.filter((server) => mayDefer(server) && mayCall('model', server)).map(({ name }) => name);
  const ofCode = all.filter((server) => mayCall('code', server)).map(({ name }) => name);
  if (deferred.length + ofCode.length === 0) return undefined;
  return [
    'Search for more tools.',
    ...(deferred.length > 0 ? [`These servers have tools that are not listed yet: ${deferred.join(', ')}.`] : []),
    ...(ofCode.length > 0 ? [`Your code can call the tools of these servers: ${ofCode.join(', ')}.`] : []),
    'Describe the task in a few words.',
    ...(deferred.length > 0 ? ['You can call the tools that a search finds from then on.'] : []),
    ...(ofCode.length > 0 ? ['For your code, you get the lines that import them and their signatures.'] : []),
  ].join(' ');
}

const PARAMETERS = {
  type: 'object',
  properties: {
    query: {
      type: 'string',
      minLength: 1,
      description: 'Words about the task, or the name of a tool or a server.',
    },
    limit: { type: 'integer', minimum: 1, maximum: MAX_LIMIT, description: `Default ${DEFAULT_LIMIT}.` },
  },
  required: ['query'],
  additionalProperties: false,
};

const input = z.object({ query: z.string(), limit: z.int().min(1).max(MAX_LIMIT).default(DEFAULT_LIMIT) });

/**
 * Runs a search: the text for the model, and the tools that it is offered from now on. `args`: as the model wrote them.
 * @throws SyntaxError or z.ZodError if the arguments do not fit the schema of the tool
 */
export async function searchResult(
  { tools, unavailable }: Toolset,
  args: string,
  code: SearchedCode,
): Promise<{ text: string; foundTools: FoundTool[] }> {
  const { query, limit } = input.parse(JSON.parse(args));
  const all = [...tools.values()];
  const inCode = code.uses(all);
  const searched = all.filter((tool) => isUnlisted(tool) || inCode.has(tool));
  const byWords = [...(await rankTools(code.others, query)), ...(await rankTools(searched, query))];
  const ranked = (await code.improve?.({ query, tools: [...code.others, ...searched], byWords })) ?? byWords;
  const shown: object[] = [];
  const foundTools: FoundTool[] = [];
  let bytes = 0;
  for (const tool of ranked.slice(0, limit)) {
    const entry = 'import' in tool ? importEntryOf(tool) : entryOf(tool, inCode.get(tool)?.());
    bytes += jsonBytes(JSON.stringify(entry));
    if (bytes > MAX_RESULT_BYTES || tool.info.type !== 'mcp') break;
    shown.push(entry);
    if ('run' in tool && isUnlisted(tool)) foundTools.push({ server: tool.info.serverName, name: tool.info.name });
  }
  const more = ranked.length - shown.length;
  const isAll = foundTools.length === shown.length;
  const notes = [
    ...(shown.length === 0 ? [`None of ${searched.length} tools matches these words.`] : []),
    ...(foundTools.length > 0 ? [`You can call ${isAll ? 'these tools' : 'those with a name'} now.`] : []),
    ...(shown.some((entry) => 'import' in entry) ? ['Your code can call those with an import.'] : []),
    ...(more > 0 ? [`${more} more match; narrow the search to see them.`] : []),
    ...unavailable.map(({ server, reason }) => `The tools of ${server} cannot be searched now: ${reason}`),
  ];
  return { text: JSON.stringify({ tools: shown, note: notes.join(' ') }), foundTools };
}

/** Whether the model is offered the tool once it has found it. */
function isUnlisted(tool: AgentTool): boolean {
  return isDeferred(tool) && calledBy('model', tool) !== undefined;
}

function importEntryOf({ import: line, signature, description }: ImportableTool): object {
  return { import: line, signature, description: shortened(description) };
}

/** `use`: how code calls it, if it may. */
function entryOf(tool: AgentTool, use: UseInCode | undefined): object {
  const { name, description, parameters, info } = tool;
  const isFound = isUnlisted(tool);
  const isSmall = isFound && jsonBytes(JSON.stringify(parameters)) <= MAX_SCHEMA_BYTES;
  return {
    ...(isFound && { name }),
    ...use,
    ...(info.type === 'mcp' && { server: info.serverName }),
    description: shortened(description),
    ...(isSmall && { input_schema: parameters }),
  };
}

function shortened(description: string): string {
  return truncateMiddle(description, MAX_DESCRIPTION_BYTES, (omitted) => `[${omitted} characters left out]`);
}
