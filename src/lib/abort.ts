/**
 * Waits for `promise`, or rejects with the signal's reason as soon as it is aborted. The work itself is not stopped.
 */
export async function waitOrAbort<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const stopListening = onAbort(signal, () => aborted.reject(signal.reason));
  try {
    return await Promise.race([promise, aborted.promise]);
  } finally {
    stopListening();
  }
}

/**
 * Calls `listener` when the signal is aborted, immediately if it already is.
 *
 * @returns a function that removes the listener: a listener left on a long-lived signal keeps all that it refers to
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener();
    return () => undefined;
  }
  signal.addEventListener('abort', listener, { once: true });
  return () => signal.removeEventListener('abort', listener);
}

/**
 * Aborts `controller` with the reason of `parent` when that is aborted. For signals that must be released before their
 * parent ends; otherwise `AbortSignal.any` suffices.
 *
 * @returns a function that removes the link
 */
export function linkSignal(parent: AbortSignal, controller: AbortController): () => void {
  return onAbort(parent, () => controller.abort(parent.reason));
}

/**
 * A signal that is never aborted. It registers no listeners: some libraries never remove theirs, and on a signal that
 * lives as long as the process these would accumulate.
 */
export const NEVER_ABORTED: AbortSignal = Object.assign(new AbortController().signal, {
  addEventListener: () => undefined,
});
