import type { ResponseInputItem, ResponseOutputItem, WebSearchTool } from 'openai/resources/responses/responses';
import { z } from 'zod';
import type { Citation, HostedPart, SearchAction, WebSource } from '../../core/sections.ts';
import type { WebSearch } from '../../spec/agent-spec.ts';
import { blockFields } from '../message-blocks.ts';
import type { ModelChunk } from '../provider.ts';

/** The web search of OpenAI's Responses, which are asked for the sources that a search has found. */
export const SEARCH_SOURCES = 'web_search_call.action.sources';

export function searchTool({ allowed_domains: domains, user_location: location }: WebSearch): WebSearchTool {
  return {
    type: 'web_search',
    ...(domains && { filters: { allowed_domains: domains } }),
    ...(location && { user_location: { type: 'approximate', ...location } }),
  };
}

const action = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('search'),
    queries: z.array(z.string()).nullish(),
    query: z.string().nullish(),
    sources: z.array(z.object({ url: z.string() })).nullish(),
  }),
  z.object({ type: z.literal('open_page'), url: z.string() }),
  z.object({ type: z.literal('find_in_page'), url: z.string(), pattern: z.string() }),
]);

type SearchItem = ResponseOutputItem & { type: 'web_search_call' };

/** The status of a search, by its id. */
export function searching(id: string, status: 'in_progress' | 'searching'): ModelChunk {
  return { hosted: [{ type: 'call', id, status }] };
}

/** A search that has begun. */
export function searchBegun({ id }: SearchItem): ModelChunk {
  return { ...searching(id, 'in_progress'), providerFields: blockFields({ type: 'hosted', fields: {} }) };
}

/** A search that has ended, and what it has found. */
export function searchEnded({ id, status, action: sent }: SearchItem): ModelChunk {
  const done = action.safeParse(sent).data;
  const call: HostedPart = {
    type: 'call',
    id,
    ...(done && { action: actionOf(done) }),
    status: status === 'completed' ? 'completed' : 'failed',
  };
  const sources: WebSource[] = done?.type === 'search' ? (done.sources ?? []).map(({ url }) => ({ url })) : [];
  if (sources.length === 0) return { hosted: [call] };
  return {
    hosted: [call, { type: 'result', id, sources }],
    providerFields: blockFields({ type: 'hosted', fields: {} }),
  };
}

function actionOf(done: z.infer<typeof action>): SearchAction {
  return done.type === 'search' ? { type: 'search', queries: done.queries ?? (done.query ? [done.query] : []) } : done;
}

const annotation = z.object({
  type: z.literal('url_citation'),
  url: z.string(),
  title: z.string().nullish(),
  start_index: z.int().nullish(),
  end_index: z.int().nullish(),
});

/** A citation of the text in progress; undefined for annotations that are none. */
export function citing(sent: unknown): ModelChunk | undefined {
  const parsed = annotation.safeParse(sent).data;
  if (!parsed) return undefined;
  const { url, title, start_index: start, end_index: end } = parsed;
  const citation: Citation = {
    source: url,
    ...(title && { title }),
    ...(typeof start === 'number' && { startIndex: start }),
    ...(typeof end === 'number' && { endIndex: end }),
  };
  return { citations: [citation] };
}

/** A search of an earlier message: reasoning may only be followed by what followed it. Results are not sent back. */
export function searchItem(hosted: HostedPart): ResponseInputItem[] {
  if (hosted.type === 'result' || !hosted.action) return [];
  const { id, action: done, status } = hosted;
  return [{ type: 'web_search_call', id, action: done, status: status ?? 'completed' }];
}
