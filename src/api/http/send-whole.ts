import type { Response } from 'express';

/**
 * Sends a response, which `send` writes at once. False if the connection closed before all of it was handed to the
 * network: the client may then repeat the request, which was carried out.
 */
export async function sendWhole(response: Response, send: () => void): Promise<boolean> {
  if (response.closed) return false;
  const { promise, resolve } = Promise.withResolvers<boolean>();
  response.once('finish', () => resolve(true)).once('close', () => resolve(false));
  send();
  return promise;
}
