import { isJSONRPCRequest, StreamableHTTPClientTransport, type JSONRPCMessage } from '@modelcontextprotocol/client';
import { AnswerTooLargeError, overflowOf } from '../lib/answer-bounds.ts';
import { noAnswerError } from './errors.ts';
import { Exchange } from './exchange.ts';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { tooLargeError } from './message-bounds.ts';
import type { ServerTransport } from './transport.ts';

type SendOptions = NonNullable<Parameters<StreamableHTTPClientTransport['send']>[1]>;

/** Of messages in one answer (MCP 2025-03-26, "batching"): ours are single requests, and each message has its cost. */
const MAX_BATCH = 100;

/** So that the SDK notices first. */
const GIVE_UP_MS = 500;

/**
 * The SDK's transport, for callers that must know what became of a request. The SDK lets a request whose reply ends
 * without an answer (HTTP 202, a broken event stream, an answer to something else) wait for its time-out; here it fails
 * at once. An event stream that the server lets us resume is resumed by the SDK first.
 */
export class HttpTransport extends StreamableHTTPClientTransport implements ServerTransport {
  readonly kind = 'streamable-http';
  readonly #answerTimeoutMs: number;

  /** `answerTimeoutMs`: how long anything but a call of a tool is waited for. */
  constructor(url: string, headers: Record<string, string>, fetch: Fetch, answerTimeoutMs: number) {
    super(new URL(url), { requestInit: { headers }, fetch: (target, init) => trackStreaming(fetch, target, init) });
    this.#answerTimeoutMs = answerTimeoutMs;
  }

  override async send(message: JSONRPCMessage | JSONRPCMessage[], options: SendOptions = {}): Promise<void> {
    // Notifications have no answer, and who listens for the end of the stream himself needs no help.
    if (!isJSONRPCRequest(message) || options.onRequestStreamEnd) {
      await Exchange.outside(() => super.send(message, options));
      return;
    }
    const { id, method } = message;
    const call = method === 'tools/call' ? Exchange.current : undefined;
    const exchange = call ?? new Exchange();
    // With servers of 2025-11-25 the SDK leaves the HTTP request of a request that it has given up open, and resumes it.
    const givenUp = call?.ended ?? AbortSignal.timeout(this.#answerTimeoutMs + GIVE_UP_MS);
    const requestSignal = options.requestSignal ?? givenUp;
    // A request that has its answer is unknown to the protocol layer by then, so this does nothing.
    const onRequestStreamEnd = (): void => {
      const overflow = exchange.response && overflowOf(exchange.response);
      if (overflow) {
        this.onmessage?.(tooLargeError(id, overflow));
        return;
      }
      this.onmessage?.(noAnswerError(id));
    };
    await exchange.run(() => super.send(message, { ...options, requestSignal, onRequestStreamEnd }));
    if (!exchange.streams) onRequestStreamEnd();
  }
}

function boundedBatch(answer: unknown): unknown {
  if (!Array.isArray(answer) || answer.length <= MAX_BATCH) return answer;
  throw new AnswerTooLargeError(`its answer has more than ${MAX_BATCH} messages`);
}

async function trackStreaming(fetch: Fetch, url: string | URL, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  const isStream = response.ok && response.headers.get('content-type')?.startsWith('text/event-stream');
  const { current } = Exchange;
  if (current) current.response = response;
  const read = response.json.bind(response);
  Object.defineProperty(response, 'json', { value: async () => boundedBatch(await read()) });
  if (current && init?.method === 'POST') current.streams = isStream === true && response.status !== 202;
  return response;
}
