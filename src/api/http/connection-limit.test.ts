import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import express from 'express';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { listenHttp } from '../../server/http-server.ts';
import { ConnectionLimit } from './connection-limit.ts';

const ADDRESS = { host: '127.0.0.1', port: 0, setting: 'EVERTURN_PORT' };
const KNOWN = 'GET /known HTTP/1.1\r\nhost: x\r\n\r\n';
const UNKNOWN = 'GET /unknown HTTP/1.1\r\nhost: x\r\n\r\n';

async function start(trustedProxies: string[] = []) {
  const lines: string[] = [];
  const log = pino({}, { write: (line) => void lines.push(line) });
  const connectionLimit = new ConnectionLimit({ config: { trustedProxies }, log, max: 2 });
  const app = express();
  app.get('/known', (request, response) => {
    connectionLimit.identified(request.socket);
    response.end('hello');
  });
  app.get('/unknown', (_request, response) => void response.end('who?'));
  const server = await listenHttp({ ...ADDRESS, connectionLimit });
  server.serve(app);
  const sockets: Socket[] = [];
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await server.stop();
  });
  const open = (localAddress = '127.0.0.1'): Socket => {
    const socket = connect({ port: Number(new URL(server.url).port), host: '127.0.0.1', localAddress });
    sockets.push(socket.on('error', () => undefined));
    return socket;
  };
  return { open, lines };
}

/** The body of the response; empty if the server closes the connection. */
async function bodyOf(socket: Socket, request: string): Promise<string> {
  socket.write(request);
  const [data] = await Promise.race([once(socket, 'data'), once(socket, 'close').then(() => [''])]);
  return /[^\n]*$/.exec(String(data))?.[0] ?? '';
}

test('the connections of an address without a valid key are limited, independently of other addresses', async () => {
  const { open, lines } = await start();
  const first = open();
  expect(await bodyOf(first, UNKNOWN)).toBe('who?');
  const silent = open();
  await once(silent, 'connect');
  expect(await bodyOf(open(), KNOWN)).toBe('');
  expect(await bodyOf(open(), KNOWN)).toBe('');
  expect(lines.map((line) => JSON.parse(line) as object)).toEqual([
    expect.objectContaining({ address: '127.0.0.1', msg: expect.stringMatching(/EVERTURN_TRUSTED_PROXIES/) }),
  ]);
  expect(await bodyOf(open('127.0.0.2'), UNKNOWN)).toBe('who?');
  // Open connections continue to work.
  expect(await bodyOf(silent, UNKNOWN)).toBe('who?');
  first.destroy();
  await expect.poll(() => bodyOf(open(), KNOWN)).toBe('hello');
});

test('connections with a valid key do not count', async () => {
  const { open } = await start();
  for (let i = 0; i < 5; i++) expect(await bodyOf(open(), KNOWN)).toBe('hello');
  const repeated = open();
  for (let i = 0; i < 3; i++) expect(await bodyOf(repeated, KNOWN)).toBe('hello');
  for (let i = 0; i < 2; i++) expect(await bodyOf(open(), UNKNOWN)).toBe('who?');
  expect(await bodyOf(open(), UNKNOWN)).toBe('');
});

test('connections of trusted proxies are not limited', async () => {
  const { open } = await start(['127.0.0.2', '127.0.1.0/24']);
  for (let i = 0; i < 5; i++) expect(await bodyOf(open('127.0.0.2'), UNKNOWN)).toBe('who?');
  for (let i = 0; i < 5; i++) expect(await bodyOf(open('127.0.1.7'), UNKNOWN)).toBe('who?');
  for (const answer of ['who?', 'who?', '']) expect(await bodyOf(open('127.0.0.3'), UNKNOWN)).toBe(answer);
});
