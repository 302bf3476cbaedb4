import { AsyncLocalStorage } from 'node:async_hooks';
import { isJSONRPCRequest, type JSONRPCMessage } from '@modelcontextprotocol/client';
import { tellingStarts } from '../lib/request-start.ts';

/** The requests of calls. A connection sends others, such as for lists of tools, in the course of a call. */
const CALL_METHODS = new Set(['tools/call', 'resources/read']);

const scope = new AsyncLocalStorage<Exchange | undefined>();

/**
 * Tracks one request to a server: whether it may have arrived, and what kind of response it gets. The layers between
 * the caller and the socket (SDK, fetch, undici) pass no values through, so it is kept in the asynchronous context.
 */
export class Exchange {
  /** False only if no byte of the request was written. Does not change after the exchange has ended. */
  sent = false;
  response: Response | undefined;
  /** The body of a response in JSON. */
  body: unknown;
  /** Whether the response is an event stream, whose end the transport reports. */
  streams = false;
  readonly #ended = new AbortController();

  static get current(): Exchange | undefined {
    return scope.getStore();
  }

  /** The current exchange, if the message is the request of its call. */
  static ofCall(message: JSONRPCMessage): Exchange | undefined {
    return isJSONRPCRequest(message) && CALL_METHODS.has(message.method) ? Exchange.current : undefined;
  }

  /** Runs `work`, whose requests do not belong to the current exchange. */
  static outside<T>(work: () => T): T {
    return scope.run(undefined, work);
  }

  run<T>(work: () => T): T {
    return scope.run(this, work);
  }

  /** Aborted when the caller no longer waits for the response. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  end(): void {
    this.#ended.abort();
  }
}

/** Interceptor for undici that records when the POST of an exchange gets a connection. */
export const trackRequestSent = tellingStarts(({ method }) => {
  const exchange = method === 'POST' ? Exchange.current : undefined;
  return (
    exchange && {
      refusal: () => (exchange.ended.aborted ? new Error('the caller no longer waits for the answer') : undefined),
      sent: () => void (exchange.sent = true),
    }
  );
});
