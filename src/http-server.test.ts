import { once } from 'node:events';
import { Agent, get, Server, type IncomingMessage } from 'node:http';
import express from 'express';
import { expect, onTestFinished, test, vi } from 'vitest';
import { serveHttp } from './http-server.ts';

const LOOPBACK = { host: '127.0.0.1', port: 0, setting: 'EVERTURN_PORT' };

test('a server that stops gives the answers that it owes, and cuts off its streams', async () => {
  const asked = Promise.withResolvers<void>();
  const mayAnswer = Promise.withResolvers<void>();
  const app = express();
  app.get('/stream', (_request, response) => {
    response.set('content-type', 'text/event-stream; charset=utf-8').write('data: 1\n\n');
  });
  app.get('/answer', async (_request, response) => {
    asked.resolve();
    await mayAnswer.promise;
    response.json({ well: true });
  });
  const server = await serveHttp(app, LOOPBACK);
  const lastResort = vi.spyOn(Server.prototype, 'closeAllConnections');
  onTestFinished(() => lastResort.mockRestore());
  const agent = new Agent({ keepAlive: true });
  onTestFinished(() => agent.destroy());

  const stream = await answerTo(`${server.url}/stream`, agent);
  const cut = new Promise((resolve) => void stream.once('error', resolve).resume());
  const answer = answerTo(`${server.url}/answer`, agent);
  await asked.promise;
  const stopped = server.stop();
  await cut;
  await expect(answerTo(`${server.url}/answer`)).rejects.toThrow('ECONNREFUSED');
  mayAnswer.resolve();
  expect(await (await answer).setEncoding('utf8').toArray()).toEqual(['{"well":true}']);
  await stopped;
  expect(lastResort).not.toHaveBeenCalled();
});

async function answerTo(url: string, agent?: Agent): Promise<IncomingMessage> {
  const [response] = (await once(get(url, { agent }), 'response')) as [IncomingMessage];
  return response;
}
