import type { Dispatcher } from 'undici';

interface RequestStart {
  /** Why the request must not be sent any more. */
  refusal?: () => Error | undefined;
  sent: () => void;
}

/**
 * Interceptor for undici that reports when a request gets a connection: undici calls `onRequestStart` when the socket
 * is connected (name resolved, TLS established) and then writes the request, unless it is aborted there. `startOf`
 * returns the callbacks, in the asynchronous context of the request.
 */
export function tellingStarts(
  startOf: (options: Dispatcher.DispatchOptions) => RequestStart | undefined,
): Dispatcher.DispatcherComposeInterceptor {
  return (dispatch) => (options, handler) => {
    const start = startOf(options);
    return dispatch(options, start ? watched(handler, start) : handler);
  };
}

function watched(handler: Dispatcher.DispatchHandler, { refusal, sent }: RequestStart): Dispatcher.DispatchHandler {
  const onRequestStart: Dispatcher.DispatchHandler['onRequestStart'] = (controller, context) => {
    const refused = refusal?.();
    if (refused) {
      controller.abort(refused);
      return;
    }
    handler.onRequestStart?.(controller, context);
    if (!controller.aborted) sent();
  };
  return Object.create(handler, { onRequestStart: { value: onRequestStart } });
}
