import type { ResponseBounds } from '../lib/response-bounds.ts';
import { createAgent, createFetch, withHeaders, type Fetch } from '../lib/guarded-fetch.ts';
import { trackModelRequests } from './sent-request.ts';
import { traceHeaders } from '../telemetry/trace-propagation.ts';

/**
 * A stream of 64 MiB has 250,000 tokens of about 260 bytes each, twice what models write. A single event, or an answer
 * that is not a stream, is parsed as a whole, so its limit is lower.
 */
const BOUNDS = { maxBytes: 4 * 1024 * 1024, maxStreamBytes: 64 * 1024 * 1024 };

interface ModelFetchOptions extends Pick<ResponseBounds, 'maxValues'> {
  /** Called with each response, also with one that is an error. */
  onAnswer?: (() => void) | undefined;
}

/** The fetch of one provider: with its own connections, bounded answers and the headers of the current trace context. */
export function createModelFetch(connectTimeoutMs: number, { onAnswer, ...bounds }: ModelFetchOptions = {}): Fetch {
  const agent = createAgent({ connectTimeoutMs }).compose(trackModelRequests);
  const fetch = createFetch(agent, { ...BOUNDS, ...bounds });
  return async (url, init) => {
    const response = await fetch(url, withHeaders(init, traceHeaders()));
    onAnswer?.();
    return response;
  };
}
