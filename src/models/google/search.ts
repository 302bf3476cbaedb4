import type { LanguageModelV4StreamPart, SharedV4ProviderMetadata } from '@ai-sdk/provider';
import { z } from 'zod';
import type { Citation, HostedPart } from '../../core/sections.ts';
import { parsedJson } from '../../lib/json.ts';
import type { AssistantPart, HostedSearch } from '../ai-sdk/hosted-search.ts';
import { blockFields } from '../message-blocks.ts';
import { ModelError } from '../model-error.ts';
import type { ModelChunk } from '../provider.ts';

/** The id of the one search of a message whose searches have no ids: its results are reported at the end. */
const SEARCH_ID = 'google_search';

const grounding = z.object({
  groundingMetadata: z.object({
    webSearchQueries: z.array(z.string()).nullish(),
    groundingChunks: z
      .array(z.object({ web: z.object({ uri: z.string(), title: z.string().nullish() }).nullish() }))
      .nullish(),
    groundingSupports: z
      .array(
        z.object({
          segment: z.object({ startIndex: z.int().nullish(), endIndex: z.int().nullish() }).nullish(),
          groundingChunkIndices: z.array(z.int()).nullish(),
        }),
      )
      .nullish(),
  }),
});

type Grounding = z.infer<typeof grounding>['groundingMetadata'];

/** A search in the stream of a model that may also call functions; Google expects it back. */
const serverTool = z.object({
  serverToolCallId: z.string(),
  serverToolType: z.string(),
  thoughtSignature: z.string().optional(),
});

const sentFields = serverTool.extend({ json: z.string() });

const args = z.object({ queries: z.array(z.string()) });

/** Google's grounding with its search. */
export const googleSearch: HostedSearch = {
  tool: () => ({ type: 'provider', id: 'google.google_search', name: 'google_search', args: {} }),
  reader: () => {
    let text = '';
    let isNamed = false;
    return (part) => {
      switch (part.type) {
        case 'stream-start':
          requireSearch(part);
          return undefined;
        case 'text-delta':
          text += part.delta;
          return undefined;
        case 'tool-call':
        case 'tool-result': {
          const chunk = serverPart(part);
          isNamed ||= chunk !== undefined;
          return chunk;
        }
        case 'finish': {
          const found = grounding.safeParse(part.providerMetadata?.['google']).data?.groundingMetadata;
          return found && grounded(found, { text, isNamed });
        }
        default:
          return undefined;
      }
    };
  },
  sent,
};

/** The adapter leaves tools out that the model cannot have together. @throws ModelError */
function requireSearch({ warnings }: LanguageModelV4StreamPart & { type: 'stream-start' }): void {
  const isMissing = warnings.some(
    (warning) => warning.type === 'unsupported' && warning.feature.includes('provider-defined tool'),
  );
  if (!isMissing) return;
  const message =
    'the model cannot search the web, or not beside other tools: leave out web_search or the other tools, or use Gemini 3';
  throw new ModelError('bad_request', message);
}

/** A search by a model that may also call functions. Its sources are those of the citations. */
function serverPart(part: LanguageModelV4StreamPart & { type: 'tool-call' | 'tool-result' }): ModelChunk | undefined {
  const tool = serverTool.safeParse(part.providerMetadata?.['google']).data;
  if (!tool) return undefined;
  const id = part.toolCallId;
  const json = part.type === 'tool-call' ? part.input : JSON.stringify(part.result);
  const hosted: HostedPart =
    part.type === 'tool-call'
      ? { type: 'call', id, action: { type: 'search', queries: queriesIn(json) }, status: 'completed' }
      : { type: 'result', id, sources: [] };
  return { hosted: [hosted], providerFields: blockFields({ type: 'hosted', fields: { ...tool, json } }) };
}

function queriesIn(json: string): string[] {
  return args.safeParse(parsedJson(json)).data?.queries ?? [];
}

/** What was found, and which parts of the text are from it; `isNamed`: the searches themselves are known. */
function grounded(found: Grounding, { text, isNamed }: { text: string; isNamed: boolean }): ModelChunk | undefined {
  const { webSearchQueries: queries, groundingChunks: chunks, groundingSupports: supports } = found;
  const sources = (chunks ?? []).map(({ web }) => web && { url: web.uri, ...(web.title && { title: web.title }) });
  const bytes = Buffer.from(text);
  // Google counts bytes, which a text in JSON does not have.
  const characters = (at: number) => bytes.subarray(0, at).toString().length;
  const citations = (supports ?? []).flatMap(({ segment, groundingChunkIndices: indices }) =>
    (indices ?? []).flatMap((index): Citation[] => {
      const source = sources[index];
      if (!source) return [];
      const { url, ...title } = source;
      const end = typeof segment?.endIndex === 'number' ? { endIndex: characters(segment.endIndex) } : {};
      return [{ source: url, ...title, ...(segment && { startIndex: characters(segment.startIndex ?? 0) }), ...end }];
    }),
  );
  const cited: ModelChunk = citations.length > 0 ? { citations } : {};
  if (isNamed || (!queries?.length && sources.length === 0)) return cited;
  const action = { type: 'search' as const, queries: queries ?? [] };
  const block = { type: 'hosted' as const, fields: {} };
  return {
    ...cited,
    hosted: [
      { type: 'call', id: SEARCH_ID, action, status: 'completed' },
      { type: 'result', id: SEARCH_ID, sources: sources.flatMap((source) => source ?? []) },
    ],
    providerFields: blockFields(block, block),
  };
}

function sent(hosted: HostedPart, fields: Record<string, unknown>): AssistantPart | undefined {
  const parsed = sentFields.safeParse(fields).data;
  if (!parsed) return undefined;
  const { json, ...tool } = parsed;
  const value: unknown = JSON.parse(json);
  const own: SharedV4ProviderMetadata = { google: tool };
  const part = { toolCallId: hosted.id, toolName: `server:${tool.serverToolType}`, providerOptions: own };
  if (hosted.type === 'call') return { type: 'tool-call', ...part, input: value, providerExecuted: true };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- JSON of the same provider
  return { type: 'tool-result', ...part, output: { type: 'json', value: value as never } };
}
