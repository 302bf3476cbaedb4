import { isJSONRPCRequest, StreamableHTTPClientTransport, type JSONRPCMessage } from '@modelcontextprotocol/client';
import { ResponseTooLargeError, overflowOf } from '../lib/response-bounds.ts';
import { noResponseError, tooLargeError, unreadableError } from './errors.ts';
import { Exchange } from './exchange.ts';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { idOfResponse } from './open-requests.ts';
import { budgetedFetch, type StreamBudget } from './stream-budget.ts';
import type { ServerTransport } from './transport.ts';

type SendOptions = NonNullable<Parameters<StreamableHTTPClientTransport['send']>[1]>;

/** Messages in one response (MCP 2025-03-26, "batching"). The client sends single requests, and each message costs time. */
const MAX_BATCH = 100;

/** Delay after the SDK's own time-out, so that the SDK times out first. */
const GIVE_UP_MS = 500;

/**
 * The SDK's transport for streamable HTTP, with a definite outcome for each request. A request fails at once if the
 * HTTP response ends without its JSON-RPC response (HTTP 202, a broken event stream, a response to another request); in
 * the SDK it waits for its time-out. An event stream that the server allows to resume is resumed by the SDK first.
 */
export class HttpTransport extends StreamableHTTPClientTransport implements ServerTransport {
  readonly kind = 'streamable-http';
  failure: Error | undefined;
  readonly #responseTimeoutMs: number;

  /** `responseTimeoutMs`: the time-out of all requests except those of calls. */
  constructor(
    url: string,
    headers: Record<string, string>,
    { fetch, budget, responseTimeoutMs }: { fetch: Fetch; budget: StreamBudget; responseTimeoutMs: number },
  ) {
    const budgeted = budgetedFetch(fetch, budget, {
      end: (error) => {
        this.failure ??= error;
        void this.close();
      },
      // If the SDK has accepted the response, the protocol layer ignores this message.
      onResponse: (id) => this.onmessage?.(unreadableError(id)),
    });
    super(new URL(url), { requestInit: { headers }, fetch: (target, init) => trackStreaming(budgeted, target, init) });
    this.#responseTimeoutMs = responseTimeoutMs;
  }

  override async send(message: JSONRPCMessage | JSONRPCMessage[], options: SendOptions = {}): Promise<void> {
    // Notifications have no response, and a caller with its own onRequestStreamEnd handles the end of the stream.
    if (!isJSONRPCRequest(message) || options.onRequestStreamEnd) {
      await Exchange.outside(() => super.send(message, options));
      return;
    }
    const { id } = message;
    const call = Exchange.ofCall(message);
    const exchange = call ?? new Exchange();
    // For servers of 2025-11-25, the SDK keeps the HTTP request of a timed-out request open, and resumes it.
    const givenUp = call?.ended ?? AbortSignal.timeout(this.#responseTimeoutMs + GIVE_UP_MS);
    const requestSignal = options.requestSignal ?? givenUp;
    // If the request already has a response, the protocol layer ignores this message.
    const onRequestStreamEnd = (): void => {
      const overflow = exchange.response && overflowOf(exchange.response);
      this.onmessage?.(overflow ? tooLargeError(id, overflow) : noResponseError(id));
    };
    try {
      await exchange.run(() => super.send(message, { ...options, requestSignal, onRequestStreamEnd }));
    } catch (error) {
      if (idOfResponse(exchange.body) !== id) throw error;
      this.onmessage?.(unreadableError(id));
    }
    if (!exchange.streams) onRequestStreamEnd();
  }
}

function boundedBatch(body: unknown): unknown {
  if (!Array.isArray(body) || body.length <= MAX_BATCH) return body;
  throw new ResponseTooLargeError(`its answer has more than ${MAX_BATCH} messages`);
}

async function trackStreaming(fetch: Fetch, url: string | URL, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  const isStream = response.ok && response.headers.get('content-type')?.startsWith('text/event-stream');
  const { current } = Exchange;
  if (current) current.response = response;
  const read = response.json.bind(response);
  const readBody = async (): Promise<unknown> => {
    const body = boundedBatch(await read());
    if (current) current.body = body;
    return body;
  };
  Object.defineProperty(response, 'json', { value: readBody });
  if (current && init?.method === 'POST') current.streams = isStream === true && response.status !== 202;
  return response;
}
