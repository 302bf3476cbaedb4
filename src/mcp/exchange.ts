import { AsyncLocalStorage } from 'node:async_hooks';
import type { Dispatcher } from 'undici';

const scope = new AsyncLocalStorage<Exchange | undefined>();

/**
 * One request of ours on its way to a server: whether it may have got there, and what kind of answer it gets. The
 * layers between the one who asks and the socket (SDK, fetch, undici) hand nothing of their own through, so it travels
 * in the asynchronous context.
 */
export class Exchange {
  /** False only if no byte of the request has been written; final once the exchange has ended. */
  sent = false;
  response: Response | undefined;
  /** The answer is an event stream, whose end the transport tells of. */
  streams = false;
  readonly #ended = new AbortController();

  static get current(): Exchange | undefined {
    return scope.getStore();
  }

  /** Runs `work`, whose requests are none of the current exchange's. */
  static outside<T>(work: () => T): T {
    return scope.run(undefined, work);
  }

  run<T>(work: () => T): T {
    return scope.run(this, work);
  }

  /** Aborted when nobody waits for the answer any more. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  end(): void {
    this.#ended.abort();
  }
}

/**
 * Interceptor for undici that notes when the POST of an exchange reaches a connection: undici calls `onRequestStart`
 * when the socket is connected (names resolved, TLS agreed) and writes to it next, unless the request is aborted there.
 */
export function trackRequestSent(dispatch: Dispatcher.Dispatch): Dispatcher.Dispatch {
  return (options, handler) => {
    const exchange = options.method === 'POST' ? Exchange.current : undefined;
    return dispatch(options, exchange ? watched(handler, exchange) : handler);
  };
}

function watched(handler: Dispatcher.DispatchHandler, exchange: Exchange): Dispatcher.DispatchHandler {
  const onRequestStart: Dispatcher.DispatchHandler['onRequestStart'] = (controller, context) => {
    if (exchange.ended.aborted) {
      controller.abort(new Error('nobody waits for the answer any more'));
      return;
    }
    handler.onRequestStart?.(controller, context);
    if (!controller.aborted) exchange.sent = true;
  };
  return Object.create(handler, { onRequestStart: { value: onRequestStart } });
}
