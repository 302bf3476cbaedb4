import { AsyncLocalStorage } from 'node:async_hooks';
import { iterateIn } from '../lib/iterate-in.ts';
import { tellingStarts } from '../lib/request-start.ts';

/** The layers between a model call and its socket (wrappers, SDKs, fetch) pass no values through. */
const scope = new AsyncLocalStorage<() => void>();

/** The response to a model call. `onSent` is called when the provider may have got the request, which it then bills. */
export function notingSent<T>(response: AsyncIterable<T>, onSent: () => void): AsyncGenerator<T> {
  return iterateIn((work) => scope.run(onSent, work), response);
}

/** Interceptor for undici: notifies a model call when its request gets a connection. */
export const trackModelRequests = tellingStarts(() => {
  const sent = scope.getStore();
  return sent && { sent };
});
