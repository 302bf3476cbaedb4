import { z } from 'zod';
import type { Fetch } from '../lib/guarded-fetch.ts';

const LOOKUP_TIMEOUT_MS = 3_000;

const listed = z.object({ data: z.array(z.object({ id: z.string() })) });

/** Where a provider's models are asked for. */
export interface LookupRequest {
  /** The URL of one model. */
  url: string;
  headers: Record<string, string>;
  /** The URL of the list of models. A model in the list exists; one that is not in it may exist, too. */
  list?: string;
}

/**
 * Whether a provider has a model; true if that cannot be determined. It has not if it says so of the model by its name:
 * servers and gateways without that route have the status 404 as well, and some of them repeat the path.
 */
export async function hasModel(fetch: Fetch, { url, headers, list }: LookupRequest, model: string): Promise<boolean> {
  const get = (one: string) => fetch(one, { headers, signal: AbortSignal.timeout(LOOKUP_TIMEOUT_MS) });
  try {
    if (list !== undefined) {
      const { data } = listed.parse(await (await get(list)).json());
      if (data.some(({ id }) => id === model)) return true;
    }
    const response = await get(url);
    const body = await response.text();
    return response.status !== 404 || !names(body, model) || body.includes('/models/');
  } catch {
    return true;
  }
}

/** As a name of its own: the model `a` is not named by every text with that letter. */
function names(body: string, model: string): boolean {
  return [/[^\w.:/-]+/, /[^\w.:-]+/].some((between) =>
    body.split(between).some((word) => word === model || word === `${model}.`),
  );
}
