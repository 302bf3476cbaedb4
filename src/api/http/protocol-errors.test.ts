import { once } from 'node:events';
import { createServer, type RequestListener, type ServerOptions } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, expect, test } from 'vitest';
import { respondToProtocolErrors } from './protocol-errors.ts';

const stops: (() => void)[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

async function connectTo(listener: RequestListener, options: ServerOptions = {}): Promise<Socket> {
  const server = createServer(options, listener);
  respondToProtocolErrors(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  stops.push(() => {
    socket.destroy();
    server.close();
  });
  return socket;
}

const REQUEST = 'GET / HTTP/1.1\r\nhost: x\r\n\r\n';

test('an incomplete request is answered with 408', async () => {
  const socket = await connectTo(() => undefined, {
    headersTimeout: 50,
    requestTimeout: 50,
    connectionsCheckingInterval: 10,
  });
  socket.write('GET / HTTP/1.1\r\nhost:');
  const answer = await text(socket);
  expect(answer).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\n/);
  expect(answer).toMatch(/"code":"request_timeout"/);
});

test('an invalid request after a complete response gets its own response', async () => {
  const socket = await connectTo((_request, response) => response.end('fine'));
  socket.write(REQUEST);
  await once(socket, 'data');
  socket.write('NONSENSE\r\n\r\n');
  expect(await text(socket)).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n.*"code":"invalid_http"/s);
});

test('an invalid request during a response closes the connection without an error response', async () => {
  const socket = await connectTo((_request, response) => response.write('a beginning'));
  socket.write(REQUEST);
  await once(socket, 'data');
  socket.write('NONSENSE\r\n\r\n');
  expect(await text(socket)).toBe('');
});
