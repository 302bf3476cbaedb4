import type { Response } from 'express';

/**
 * Sends a response, which `send` writes at once. False if the connection closed before all of it was handed to the
 * network: the client may not know that its request was carried out, and repeat it.
 */
export async function sendWhole(response: Response, send: () => void): Promise<boolean> {
  if (response.closed) return false;
  const { promise, resolve } = Promise.withResolvers<boolean>();
  response.once('finish', () => resolve(true)).once('close', () => resolve(false));
  send();
  return promise;
}
