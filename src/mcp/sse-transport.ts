import { AsyncLocalStorage } from 'node:async_hooks';
import {
  SdkErrorCode,
  SdkHttpError,
  SSEClientTransport,
  SseError,
  type JSONRPCMessage,
  type TransportSendOptions,
} from '@modelcontextprotocol/client';
import { waitOrAbort } from '../lib/abort.ts';
import { overflowOf } from '../lib/response-bounds.ts';
import { withHeaders, type Fetch } from '../lib/guarded-fetch.ts';
import { Exchange } from './exchange.ts';
import { McpServerError, unreadableError } from './errors.ts';
import { budgetedFetch, type StreamBudget } from './stream-budget.ts';
import type { ServerTransport } from './transport.ts';

/**
 * Transport for servers of 2024-11-05 (MCP, "HTTP with SSE"), which send all responses on one event stream. The SDK's
 * transport reopens a broken stream, which creates a new session in which earlier requests never get a response; this
 * one closes the connection instead.
 */
export class SseTransport extends SSEClientTransport implements ServerTransport {
  readonly kind = 'sse';
  failure: Error | undefined;
  readonly #refused = new AbortController();

  constructor(url: string, headers: Record<string, string>, { fetch, budget }: { fetch: Fetch; budget: StreamBudget }) {
    const budgeted = budgetedFetch(fetch, budget, {
      end: (error) => {
        this.failure ??= error;
        this.#refused.abort(error);
        void this.close();
      },
      // If the SDK has accepted the response, the protocol layer ignores this message.
      onResponse: (id) => this.onmessage?.(unreadableError(id)),
    });
    let stream: Response | undefined;
    super(new URL(url), {
      requestInit: { headers },
      fetch: async (target, init) => {
        if (init?.method === 'POST') return post(budgeted, target, init);
        stream = await budgeted(target, init);
        return stream;
      },
    });
    // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's transports are no event targets
    this.onerror = (error) => {
      if (!(error instanceof SseError) || this.failure) return;
      const overflow = stream && overflowOf(stream);
      this.failure =
        overflow ??
        new McpServerError(error.code === undefined ? 'ended its event stream' : `answered with HTTP ${error.code}`);
      void this.close();
    };
  }

  /** The SDK waits for the stream to name an endpoint, also after it was closed. */
  override start(): Promise<void> {
    return waitOrAbort(super.start(), this.#refused.signal);
  }

  override send(message: JSONRPCMessage, { headers = {} }: TransportSendOptions = {}): Promise<void> {
    const send = (): Promise<void> => headersOfMessage.run(headers, () => super.send(message));
    return Exchange.ofCall(message) ? send() : Exchange.outside(send);
  }
}

/** Headers for the current message: the SDK's transport accepts none for a single message. */
const headersOfMessage = new AsyncLocalStorage<Readonly<Record<string, string>>>();

/** Sends a message. Throws an error with the HTTP status, which the SDK's own error has only in its text. */
async function post(fetch: Fetch, url: string | URL, init: RequestInit): Promise<Response> {
  const response = await fetch(url, withHeaders(init, headersOfMessage.getStore() ?? {}));
  if (response.status < 400) return response;
  const { status, statusText } = response;
  const text = await response.text().catch(() => '');
  throw new SdkHttpError(SdkErrorCode.ClientHttpNotImplemented, `Error POSTing to endpoint: ${text}`, {
    status,
    statusText,
    text,
  });
}
