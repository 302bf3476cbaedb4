import { once } from 'node:events';
import { Agent, get, Server, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import express, { type Response } from 'express';
import { expect, onTestFinished, test, vi } from 'vitest';
import { listenHttp } from '../../src/server/http-server.ts';

const LOOPBACK = { host: '127.0.0.1', port: 0, setting: 'EVERTURN_PORT' };

test('a server that listens answers that it is starting, until it serves', async () => {
  const server = await listenHttp(LOOPBACK);
  onTestFinished(() => server.stop());
  const early = await fetch(`${server.url}/healthz`);
  expect([early.status, early.headers.get('retry-after')]).toEqual([503, expect.stringMatching(/^\d+$/)]);
  expect(await early.json()).toMatchObject({
    error: { code: 'unavailable', message: 'the server is starting: retry' },
  });
  server.serve(express().get('/healthz', (_request, response) => void response.json({ well: true })));
  expect(await (await fetch(`${server.url}/healthz`)).json()).toEqual({ well: true });
  await expect(listenHttp({ ...LOOPBACK, port: Number(new URL(server.url).port) })).rejects.toThrow(
    /^cannot listen on 127.0.0.1:\d+, the port is in use: choose another EVERTURN_PORT$/,
  );
});

test('a server that stops completes its responses and ends its streams', async () => {
  const requested = Promise.withResolvers<void>();
  const mayAnswer = Promise.withResolvers<void>();
  const app = express();
  app.get('/stream', (_request, response) => {
    response.set('content-type', 'text/event-stream; charset=utf-8').write('data: 1\n\n');
  });
  app.get('/answer', async (_request, response) => {
    requested.resolve();
    await mayAnswer.promise;
    response.json({ well: true });
  });
  const server = await listenHttp(LOOPBACK);
  server.serve(app);
  const lastResort = vi.spyOn(Server.prototype, 'closeAllConnections');
  onTestFinished(() => lastResort.mockRestore());
  const agent = new Agent({ keepAlive: true });
  onTestFinished(() => agent.destroy());

  const stream = await answerTo(`${server.url}/stream`, agent);
  const cut = new Promise((resolve) => void stream.once('error', resolve).resume());
  const answer = answerTo(`${server.url}/answer`, agent);
  await requested.promise;
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

const HEADS = ['', 'GET /', 'GET / HTTP/1.1\r\nhost: x\r\nx: '];
const BODY = 'POST /body HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 100000\r\n\r\n';

test.each([
  ['the head of a request', { headMs: 2_000, requestMs: 3_600_000, checkMs: 100, idleMs: 60_000 }, HEADS],
  ['a body', { headMs: 2_000, requestMs: 2_000, checkMs: 100, idleMs: 60_000 }, [BODY]],
])('a client that sends %s byte by byte is disconnected, while a stream continues', async (_, timeouts, beginnings) => {
  const app = express();
  const streams: Response[] = [];
  app.get('/stream', (_request, response) => {
    response.set('content-type', 'text/event-stream; charset=utf-8').write('data: 1\n\n');
    streams.push(response);
  });
  app.post('/body', express.text(), (_request, response) => void response.json({}));
  const server = await listenHttp(LOOPBACK, timeouts);
  server.serve(app);
  onTestFinished(() => server.stop());
  const stream = await answerTo(`${server.url}/stream`, new Agent());
  const events: string[] = [];
  stream.setEncoding('utf8').on('data', (data: string) => events.push(data));

  for (const answer of await Promise.all(beginnings.map((begin) => dribble(server.url, begin)))) {
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
    expect(answer).toMatch(/"code":"request_timeout"/);
  }
  expect(events).toEqual(['data: 1\n\n']);
  streams[0]?.write('data: 2\n\n');
  await expect.poll(() => events.join('')).toBe('data: 1\n\ndata: 2\n\n');
});

test('a client that does not read its response is disconnected, and an idle stream with a heartbeat is not', async () => {
  const app = express();
  const cutOff = Promise.withResolvers<void>();
  app.get('/large', (_request, response) => {
    response.once('close', () => {
      if (!response.writableFinished) cutOff.resolve();
    });
    response.send(Buffer.alloc(32 * 1024 * 1024));
  });
  app.get('/stream', (_request, response) => {
    response.set('content-type', 'text/event-stream; charset=utf-8');
    const heartbeat = setInterval(() => response.write(': hb\n\n'), 100);
    response.once('close', () => clearInterval(heartbeat));
  });
  const server = await listenHttp(LOOPBACK, { headMs: 5_000, requestMs: 5_000, checkMs: 100, idleMs: 2_000 });
  server.serve(app);
  onTestFinished(() => server.stop());
  const stream = (await answerTo(`${server.url}/stream`, new Agent())).resume();
  const large = await answerTo(`${server.url}/large`, new Agent());
  large.on('error', () => undefined);
  await cutOff.promise;
  expect(stream.closed).toBe(false);
  large.destroy();
});

test('a request that arrived while the server was busy for longer than its time-out is executed', async () => {
  const app = express();
  app.get('/', (_request, response) => void response.json({ well: true }));
  const timeouts = { headMs: 200, requestMs: 200, checkMs: 50, idleMs: 60_000 };
  const busy = { admit: () => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000) };
  const server = await listenHttp({ ...LOOPBACK, connectionLimit: busy }, timeouts);
  server.serve(app);
  onTestFinished(() => server.stop());
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  socket.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 [^]*\{"well":true\}$/);
});

/** Sends the beginning of a request, and then single bytes until the server closes the connection. Returns the response. */
async function dribble(url: string, begin: string): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  if (begin) socket.write(begin);
  const more = setInterval(() => begin && socket.writable && socket.write('a'), 50);
  try {
    return await text(socket);
  } finally {
    clearInterval(more);
  }
}
