import { z } from 'zod';
import { withHeaders, type Fetch } from '../lib/guarded-fetch.ts';
import type { FoundModel } from './provider.ts';

const LOOKUP_TIMEOUT_MS = 3_000;

/** A list with more models than this is not searched for names that resemble one: that takes time for each. */
const MAX_LISTED = 2_000;

/** Names in an error or a warning are legible. */
const LEGIBLE = /^\P{C}{1,200}$/u;

const size = z.int().min(1).optional().catch(undefined);

/** A model in a list or alone. LiteLLM has the first field, vLLM the second, OpenRouter the third, llama.cpp the last. */
const listedModel = z.object({
  id: z.string(),
  max_input_tokens: size,
  max_model_len: size,
  context_length: size,
  meta: z.object({ n_ctx: size }).optional().catch(undefined),
});

const modelList = z.object({ data: z.array(listedModel), has_more: z.boolean().nullish() });

/** Where a provider's models are looked up. */
export interface LookupRequest {
  /** The URL below which each model has its own. */
  url: string;
  /** What the protocol requires, with the key. */
  ownHeaders: Record<string, string>;
  /** The headers of the provider's settings, which replace the others in any spelling. */
  headers: Record<string, string>;
  /** Whether the URL itself has a list of models. A model in the list exists; one that is not in it may exist, too. */
  hasList?: boolean;
}

/**
 * Looks a model up at its provider; undefined if there is no response that can be read. The model counts as missing
 * only if the response to the request for it names it: servers and gateways without that route respond with 404 as
 * well, and some of them repeat the path. A list proves no model missing: llama.cpp accepts any name, vLLM loads
 * adapters that it does not list, and LiteLLM lists routes with wildcards.
 */
export async function findModel(
  fetch: Fetch,
  { url, ownHeaders, headers, hasList }: LookupRequest,
  model: string,
): Promise<FoundModel | undefined> {
  const get = (one: string) =>
    fetch(one, withHeaders({ headers: ownHeaders, signal: AbortSignal.timeout(LOOKUP_TIMEOUT_MS) }, headers));
  try {
    const listing = hasList ? modelList.parse(await (await get(url)).json()) : undefined;
    const models = listing?.data ?? [];
    const listed = models.find(({ id }) => id === model);
    if (listed) return { exists: true, ...windowOf(listed) };
    // The route of a single model only has the names of the list, so it would respond that the model is missing.
    if (models.some(({ id }) => isPatternOf(id, model))) return { exists: true };
    const response = await get(`${url}/${encodeURIComponent(model)}`);
    const body = await response.text();
    if (response.ok) return { exists: true, ...windowOf(ownEntry(body, model)) };
    const isComplete = models.length > 0 && models.length <= MAX_LISTED && listing?.has_more !== true;
    const others = isComplete ? { others: models.map(({ id }) => id).filter((id) => LEGIBLE.test(id)) } : {};
    const isDenied = response.status === 404 && names(body, model) && !body.includes('/models/');
    return { exists: !isDenied, ...others };
  } catch {
    return undefined;
  }
}

function windowOf(model: z.infer<typeof listedModel> | undefined): Pick<FoundModel, 'contextTokens'> {
  const { max_input_tokens: input, max_model_len: all, context_length: context, meta } = model ?? {};
  const contextTokens = meta?.n_ctx ?? input ?? all ?? context;
  return contextTokens === undefined ? {} : { contextTokens };
}

/** The model in a body, which may be any page with the status 200. */
function ownEntry(body: string, model: string): z.infer<typeof listedModel> | undefined {
  if (!body.startsWith('{')) return undefined;
  const parsed = listedModel.safeParse(JSON.parse(body));
  return parsed.data?.id === model ? parsed.data : undefined;
}

/** Whether a listed name is a route of LiteLLM for any name that begins like it, such as `openai/*`. */
function isPatternOf(listed: string, model: string): boolean {
  return listed.endsWith('*') && model.startsWith(listed.slice(0, -1));
}

/** Whether a text contains the name as a word: not every text with the letter names the model `a`. */
function names(body: string, model: string): boolean {
  return [/[^\w.:/-]+/, /[^\w.:-]+/].some((between) =>
    body.split(between).some((word) => word === model || word === `${model}.`),
  );
}
