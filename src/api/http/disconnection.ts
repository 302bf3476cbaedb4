import type { ServerResponse } from 'node:http';

/**
 * A signal that is aborted when the connection of a response closes; at once if it has closed, which it may have while
 * the request was prepared.
 */
export function disconnection(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  if (response.closed) gone.abort();
  else response.once('close', () => gone.abort());
  return gone.signal;
}
