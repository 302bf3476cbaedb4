import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { modelRequest } from '../../../test/support/model-request.ts';
import { openAIProvider } from './chat.ts';

const CALLS = 20;

const event = (content: object | string) =>
  `data: ${typeof content === 'string' ? content : JSON.stringify(content)}\n\n`;

const ANSWER = [
  event({ choices: [{ index: 0, delta: { content: 'yes' } }] }),
  event({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }),
  event('[DONE]'),
].join('');

/** A model whose answers are complete, but whose responses are not ended; `calls` has them, and counts connections. */
async function startModel(): Promise<{ call: () => Promise<ServerResponse>; connections: () => number }> {
  let connections = 0;
  const responses: ServerResponse[] = [];
  const server = createServer((_request, response) => {
    responses.push(response);
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write(ANSWER);
  });
  server.on('connection', () => (connections += 1));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => server.closeAllConnections());
  onTestFinished(() => void server.close());
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it listens on a port
  const { port } = server.address() as AddressInfo;
  const provider = openAIProvider({
    apiKey: 'k',
    baseUrl: `http://127.0.0.1:${port}/v1`,
    headers: {},
    firstChunkSeconds: 3600,
    idleSeconds: 3600,
  });
  return {
    connections: () => connections,
    call: async () => {
      const answer = provider.stream(
        modelRequest({ transcript: [{ role: 'user', content: [{ type: 'text', text: 'really?' }] }] }),
        new AbortController().signal,
      );
      const chunks = await Array.fromAsync(answer);
      expect(chunks).toEqual([{ content: 'yes' }, { finishReason: 'stop' }]);
      const response = responses.pop();
      if (!response) throw new Error('the model was not called');
      return response;
    },
  };
}

test('calls use a connection again, also if the end of a response arrives after its last event', async () => {
  const model = await startModel();
  for (let i = 0; i < CALLS; i++) {
    const response = await model.call();
    response.end();
    await once(response, 'close');
  }
  // A call may begin just before the end of the previous response was read.
  expect(model.connections()).toBeLessThan(CALLS);
});

test('the connection of a response without an end is closed', async () => {
  const model = await startModel();
  const response = await model.call();
  await once(response, 'close');
  expect(response.writableEnded).toBe(false);
});
