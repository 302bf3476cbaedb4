import type { LanguageModelV4StreamPart } from '@ai-sdk/provider';
import { z } from 'zod';
import type { HostedPart, SearchAction, WebSource } from '../../core/sections.ts';
import { parsedJson } from '../../lib/json.ts';
import type { HostedSearch } from '../ai-sdk/hosted-search.ts';
import { blockFields } from '../message-blocks.ts';
import type { ModelChunk } from '../provider.ts';

const NAME = 'web_search';

const input = z.object({ query: z.string() });

const results = z.array(
  z.object({
    url: z.string(),
    title: z.string().nullish(),
    pageAge: z.string().nullish(),
    encryptedContent: z.string(),
  }),
);

const failure = z.object({ errorCode: z.string() });

const citations = z.object({
  citations: z.array(
    z.object({
      type: z.literal('web_search_result_location'),
      url: z.string(),
      title: z.string().nullish(),
      cited_text: z.string(),
      encrypted_index: z.string(),
    }),
  ),
});

/** Anthropic's web search. Its results and citations have encrypted fields, which it expects back with the message. */
export const anthropicSearch: HostedSearch = {
  tool: ({ allowed_domains: allowedDomains, max_uses: maxUses, user_location: location }) => ({
    type: 'provider',
    id: 'anthropic.web_search_20250305',
    name: NAME,
    args: {
      ...(allowedDomains && { allowedDomains }),
      ...(maxUses && { maxUses }),
      ...(location && { userLocation: { type: 'approximate', ...location } }),
    },
  }),
  reader: () => {
    const actions = new Map<string, SearchAction>();
    return (part) => read(part, actions);
  },
  cited: (fields) =>
    (citations.safeParse(fields).data?.citations ?? []).map((one) => ({
      source: one.url,
      ...(one.title && { title: one.title }),
      citedText: one.cited_text,
      signature: one.encrypted_index,
    })),
  sent: (hosted) => (hosted.type === 'call' ? sentCall(hosted) : sentResult(hosted)),
  citing: (given) => ({
    citations: given.map(
      ({ source: url, title = null, citedText: cited_text = '', signature: encrypted_index = '' }) => ({
        type: 'web_search_result_location',
        url,
        title,
        cited_text,
        encrypted_index,
      }),
    ),
  }),
};

function read(part: LanguageModelV4StreamPart, actions: Map<string, SearchAction>): ModelChunk | undefined {
  const own = { providerFields: blockFields({ type: 'hosted', fields: {} }) };
  switch (part.type) {
    case 'tool-input-start':
      if (!part.providerExecuted || part.toolName !== NAME) return undefined;
      return { hosted: [{ type: 'call', id: part.id, status: 'in_progress' }], ...own };
    case 'tool-call': {
      if (!part.providerExecuted || part.toolName !== NAME) return undefined;
      const action: SearchAction = { type: 'search', queries: queriesIn(part.input) };
      actions.set(part.toolCallId, action);
      return { hosted: [{ type: 'call', id: part.toolCallId, action, status: 'searching' }] };
    }
    case 'tool-result': {
      if (part.toolName !== NAME) return undefined;
      const { toolCallId: id } = part;
      const action = actions.get(id);
      const result = resultOf(id, part.result);
      const status = result.errorCode === undefined ? 'completed' : 'failed';
      return { hosted: [{ type: 'call', id, ...(action && { action }), status }, result], ...own };
    }
    default:
      return undefined;
  }
}

function queriesIn(json: string): string[] {
  const found = input.safeParse(parsedJson(json)).data;
  return found ? [found.query] : [];
}

function resultOf(id: string, given: unknown): HostedPart & { type: 'result' } {
  const found = results.safeParse(given).data;
  if (!found)
    return { type: 'result', id, sources: [], errorCode: failure.safeParse(given).data?.errorCode ?? 'unavailable' };
  const sources = found.map(({ url, title, pageAge, encryptedContent: signature }): WebSource => ({
    url,
    ...(title && { title }),
    ...(pageAge && { pageAge }),
    signature,
  }));
  return { type: 'result', id, sources };
}

type Sent = ReturnType<HostedSearch['sent']>;

function sentCall({ id: toolCallId, action }: HostedPart & { type: 'call' }): Sent {
  const query = action?.type === 'search' ? action.queries[0] : undefined;
  if (query === undefined) return undefined;
  return { type: 'tool-call', toolCallId, toolName: NAME, input: { query }, providerExecuted: true };
}

function sentResult({ id: toolCallId, sources, errorCode }: HostedPart & { type: 'result' }): Sent {
  const result = { type: 'tool-result' as const, toolCallId, toolName: NAME };
  if (errorCode !== undefined) return { ...result, output: { type: 'error-json', value: { errorCode } } };
  if (sources.some(({ signature }) => signature === undefined)) return undefined;
  const value = sources.map(({ url, title = null, pageAge = null, signature = '' }) => ({
    type: 'web_search_result',
    url,
    title,
    pageAge,
    encryptedContent: signature,
  }));
  return { ...result, output: { type: 'json', value } };
}
