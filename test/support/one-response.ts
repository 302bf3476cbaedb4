import { once } from 'node:events';
import { createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type Response } from 'express';
import { onTestFinished } from 'vitest';

/** The response that `handler` gets to write on a real connection, and its client, which reads when the test does. */
export async function oneResponse(
  handler: (response: Response) => unknown,
): Promise<{ response: Response; client: IncomingMessage }> {
  const received = Promise.withResolvers<Response>();
  const app = express().get('/', (_request, response) => {
    received.resolve(response);
    return handler(response);
  });
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const [client] = (await once(get({ host: '127.0.0.1', port }), 'response')) as [IncomingMessage];
  return { response: await received.promise, client };
}
