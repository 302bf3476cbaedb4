import { z } from 'zod';
import { SEARCH_STATUSES } from '../../../core/sections.ts';
import { bounded } from '../../../spec/bounds.ts';

/** Calls that a provider executes itself, as parts of items: llm-sdk 0.3 has no such parts, so there is one shape. */

const MAX_MEMBERS = 1_000;

/**
 * The members of a part, or the parts of a message or result. The document does not have the limit: generated requests at
 * the limits of lists in lists are larger than any body may be.
 */
export const listOf = <M extends z.ZodType>(member: M) => bounded(z.array(member), MAX_MEMBERS).meta({ override: {} });

const url = z.string().max(8_192);

const action = z.discriminatedUnion('type', [
  z.object({ type: z.literal('search'), queries: listOf(z.string()) }),
  z.object({ type: z.literal('open_page'), url }),
  z.object({ type: z.literal('find_in_page'), url, pattern: z.string() }),
]);

const signature = z.string().describe('opaque: for the provider alone, which expects it back');

export const hostedCall = z.object({
  type: z.literal('web_search'),
  action: action.optional(),
  status: z.enum(SEARCH_STATUSES).optional(),
});

const source = z.object({
  url,
  title: z.string().optional(),
  page_age: z.string().optional().describe('when the page was last changed, in the words of the provider'),
  signature: signature.optional(),
});

export const hostedResult = z.object({
  type: z.literal('web_search'),
  sources: z.array(source),
  error_code: z.string().optional().describe('why the search has failed, in the words of the provider'),
});

export const hostedCallPart = z.object({
  type: z.literal('tool-call'),
  tool_call_id: z.string(),
  call: hostedCall,
  signature: signature.optional(),
});

export const hostedResultPart = z.object({
  type: z.literal('tool-result'),
  tool_call_id: z.string(),
  result: hostedResult,
  status: z.enum(['completed', 'failed']),
});

export const citation = z.object({
  source: z.string(),
  title: z.string().optional(),
  cited_text: z.string().optional(),
  start_index: z.int().optional(),
  end_index: z.int().optional(),
  signature: signature.optional(),
});

export type HostedCallPart = z.infer<typeof hostedCallPart>;
export type HostedResultPart = z.infer<typeof hostedResultPart>;
export type WireCitation = z.infer<typeof citation>;

const text = z.string().nullish();

/** A call of a provider as clients send it back. */
export const givenCall = z.object({
  type: z.literal('web_search'),
  action: action.nullish(),
  status: z.enum(SEARCH_STATUSES).nullish(),
});

export const givenResult = z.object({
  type: z.literal('web_search'),
  sources: listOf(z.object({ url, title: text, page_age: text, signature: text })),
  error_code: text,
});

export const givenCitations = listOf(
  z.object({
    source: z.string(),
    title: text,
    cited_text: text,
    start_index: z.int().nullish(),
    end_index: z.int().nullish(),
    signature: text,
  }),
);

export type GivenCitation = z.infer<typeof givenCitations>[number];
