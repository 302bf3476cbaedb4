import { z } from 'zod';
import type { FoundTool } from '../core/records.ts';
import { truncateMiddle, jsonBytes } from '../core/text.ts';
import { rankTools } from './rank-tools.ts';
import { isDeferred, type AgentTool, type Toolset } from './toolset.ts';

export const SEARCH_TOOLS = 'search_tools';

const DEFAULT_LIMIT = 5;
const MAX_LIMIT = 20;

/** Far below the size at which a result is cut for the model, because half a schema is useless. */
const MAX_RESULT_BYTES = 32 * 1024;
const MAX_DESCRIPTION_BYTES = 2 * 1024;
/** A larger schema is omitted; the model gets it when the tool is offered. */
const MAX_SCHEMA_BYTES = 8 * 1024;

/** Lets the model search for deferred tools; the server runs it. `servers`: those that may have such tools. */
export function searchTools(servers: string[]): AgentTool {
  return {
    name: SEARCH_TOOLS,
    description:
      `Search for more tools. These servers have tools that are not listed yet: ${servers.join(', ')}. ` +
      'Describe the task in a few words. You can call the tools that a search finds from then on.',
    parameters: {
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
    },
    info: { type: 'system', name: SEARCH_TOOLS },
    run: { to: 'server', effect: 'retry', approval: false },
  };
}

const input = z.object({ query: z.string(), limit: z.int().min(1).max(MAX_LIMIT).default(DEFAULT_LIMIT) });

/**
 * Runs a search: the text for the model, and the tools that it is offered from now on. `args`: as the model wrote them.
 * @throws SyntaxError or z.ZodError if the arguments do not fit the schema of `searchTools`
 */
export function searchResult({ tools, unavailable }: Toolset, args: string): { text: string; foundTools: FoundTool[] } {
  const { query, limit } = input.parse(JSON.parse(args));
  const deferred = [...tools.values()].filter(isDeferred);
  const ranked = rankTools(deferred, query);
  const shown: object[] = [];
  const foundTools: FoundTool[] = [];
  let bytes = 0;
  for (const tool of ranked.slice(0, limit)) {
    const entry = describe(tool);
    bytes += jsonBytes(JSON.stringify(entry));
    if (bytes > MAX_RESULT_BYTES || tool.info.type !== 'mcp') break;
    shown.push(entry);
    foundTools.push({ server: tool.info.serverName, name: tool.info.name });
  }
  const more = ranked.length - shown.length;
  const notes = [
    ...(shown.length > 0
      ? ['You can call these tools now.']
      : [`None of ${deferred.length} tools matches these words.`]),
    ...(more > 0 ? [`${more} more match; narrow the search to see them.`] : []),
    ...unavailable.map(({ server, reason }) => `The tools of ${server} cannot be searched now: ${reason}`),
  ];
  return { text: JSON.stringify({ tools: shown, note: notes.join(' ') }), foundTools };
}

function describe({ name, description, parameters, info }: AgentTool): object {
  const isSmall = jsonBytes(JSON.stringify(parameters)) <= MAX_SCHEMA_BYTES;
  return {
    name,
    ...(info.type === 'mcp' && { server: info.serverName }),
    description: truncateMiddle(description, MAX_DESCRIPTION_BYTES, (omitted) => `[${omitted} characters left out]`),
    ...(isSmall && { input_schema: parameters }),
  };
}
