import { createServer, type Server } from 'node:http';
import { connect } from 'node:net';
import { Agent, buildConnector } from 'undici';
import { expect, onTestFinished, test } from 'vitest';
import { Exchange, trackRequestSent } from './exchange.ts';
import { createFetch } from '../lib/guarded-fetch.ts';

async function listen(onRequest: () => void): Promise<{ server: Server; url: string }> {
  const server = createServer((_request, response) => {
    onRequest();
    response.end('hello');
  });
  onTestFinished(() => void server.close());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('not listening');
  return { server, url: `http://127.0.0.1:${address.port}/` };
}

function fetchThrough(connector: buildConnector.connector) {
  const agent = new Agent({ connect: connector });
  onTestFinished(() => agent.destroy());
  return createFetch(agent.compose(trackRequestSent));
}

test('a request counts as sent once its connection is established, and not before', async () => {
  let requests = 0;
  const { url } = await listen(() => (requests += 1));
  const connecting = Promise.withResolvers<() => void>();
  const real = buildConnector({});
  const fetch = fetchThrough((options, callback) => connecting.resolve(() => real(options, callback)));
  const exchange = new Exchange();
  const answer = exchange.run(() => fetch(url, { method: 'POST', body: 'x' }));
  const resume = await connecting.promise;
  expect(exchange.sent).toBe(false);
  resume();
  expect(await (await answer).text()).toBe('hello');
  expect(exchange.sent).toBe(true);
  expect(requests).toBe(1);
});

test('an exchange that ended while it was connecting never sends its request', async () => {
  let requests = 0;
  const { server, url } = await listen(() => (requests += 1));
  const connecting = Promise.withResolvers<() => void>();
  const connected = Promise.withResolvers<void>();
  const fetch = fetchThrough((options, callback) =>
    connecting.resolve(() => {
      const socket = connect(Number(options.port), options.hostname, () => callback(null, socket));
      socket.on('close', () => connected.resolve());
    }),
  );
  const exchange = new Exchange();
  // Without a signal of its own, only the exchange can abort it.
  const answer = exchange.run(() => fetch(url, { method: 'POST', body: 'x' }));
  const failure = answer.catch((error: unknown) => error);
  const goOn = await connecting.promise;
  exchange.end();
  goOn();
  expect(await failure).toBeInstanceOf(TypeError);
  expect(exchange.sent).toBe(false);
  server.closeIdleConnections();
  await connected.promise;
  expect(requests).toBe(0);
});

test('requests outside an exchange, and GET requests, do not mark it as sent', async () => {
  const { url } = await listen(() => {});
  const fetch = fetchThrough(buildConnector({}));
  const exchange = new Exchange();
  await exchange.run(async () => {
    await (await Exchange.outside(() => fetch(url, { method: 'POST', body: 'x' }))).text();
    await (await fetch(url)).text();
  });
  expect(exchange.sent).toBe(false);
});
