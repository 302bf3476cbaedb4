import type { ResponseBounds } from '../lib/response-bounds.ts';
import { createAgent, createFetch, withHeaders, type Fetch } from '../lib/guarded-fetch.ts';
import { trackModelRequests } from './sent-request.ts';
import { traceHeaders } from '../telemetry/trace-propagation.ts';

/**
 * A stream of 64 MiB has 250,000 tokens of about 260 bytes each, twice what models write. A single event, or a response
 * that is not a stream, is parsed as a whole, so its limit is lower.
 */
const BOUNDS = { maxBytes: 4 * 1024 * 1024, maxStreamBytes: 64 * 1024 * 1024 };

interface ModelFetchOptions extends Pick<ResponseBounds, 'maxValues'> {
  /** Called with each response, also with one that is an error. */
  onResponse?: (() => void) | undefined;
}

/**
 * The fetch of one provider: with its own connections, bounded responses and the headers of the current trace context.
 * It follows no redirect: another host would get the conversation, and keys in headers other than `Authorization`.
 */
export function createModelFetch(connectTimeoutMs: number, { onResponse, ...bounds }: ModelFetchOptions = {}): Fetch {
  const agent = createAgent({ connectTimeoutMs }).compose(trackModelRequests);
  const fetch = createFetch(agent, { ...BOUNDS, ...bounds });
  return async (url, init) => {
    const response = await fetch(url, { ...withHeaders(init, traceHeaders()), redirect: 'manual' });
    onResponse?.();
    const target = response.headers.get('location');
    return response.status >= 300 && response.status < 400 && target !== null
      ? refusedRedirect(response, URL.parse(target, String(url)))
      : response;
  };
}

/** A redirect as an error of the server, in the form of OpenAI's, which all adapters read. */
async function refusedRedirect(response: Response, target: URL | null): Promise<Response> {
  await response.body?.cancel();
  const place = target?.origin ?? 'no valid address';
  const message = `the server redirects to ${place}, which is not followed: base_url must be the address that answers`;
  return Response.json({ error: { message } }, { status: response.status });
}
