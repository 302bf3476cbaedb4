import { AsyncLocalStorage } from 'node:async_hooks';
import { iterateIn } from '../lib/iterate-in.ts';
import { tellingStarts } from '../lib/request-start.ts';

/** The layers between a model call and its socket (wrappers, SDKs, fetch) pass no values through. */
const scope = new AsyncLocalStorage<() => void>();

/** The answer to a model call. `onSent` is called when its request may have reached the provider, which then bills it. */
export function notingSent<T>(answer: AsyncIterable<T>, onSent: () => void): AsyncGenerator<T> {
  return iterateIn((work) => scope.run(onSent, work), answer);
}

/** Interceptor for undici: tells the model call whose request it is that it gets a connection. */
export const trackModelRequests = tellingStarts(() => {
  const sent = scope.getStore();
  return sent && { sent };
});
