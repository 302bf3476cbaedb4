import { createServer } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { createAgent, createFetch } from './guarded-fetch.ts';
import { isPrivateAddress } from './tools/private-address.ts';

async function listen(location?: string): Promise<number> {
  const server = createServer((_request, response) => {
    if (location) response.writeHead(307, { location });
    response.end('hello');
  });
  onTestFinished(() => void server.close());
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('not listening');
  return address.port;
}

function fetchRefusing(refuses?: (address: string) => boolean) {
  const agent = createAgent({ connectTimeoutMs: 10_000, ...(refuses && { refuses }) });
  onTestFinished(() => agent.destroy());
  return createFetch(agent);
}

async function failure(promise: Promise<Response>): Promise<unknown> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return error instanceof Error && error.cause instanceof Error ? error.cause.message : error;
}

test('private addresses are refused, by number and by name, with what to do', async () => {
  const port = await listen();
  const fetch = fetchRefusing(isPrivateAddress);
  const remedy = 'a private address: set EVERTURN_ALLOW_PRIVATE_URLS=true, or register the server by name';
  expect(await failure(fetch(`http://127.0.0.1:${port}/`))).toBe(`127.0.0.1 is ${remedy}`);
  expect(await failure(fetch(`http://2130706433:${port}/`))).toBe(`127.0.0.1 is ${remedy}`);
  expect(await failure(fetch(`http://[::ffff:127.0.0.1]:${port}/`))).toBe(`::ffff:7f00:1 is ${remedy}`);
  expect(await failure(fetch(`http://localhost:${port}/`))).toMatch(/^localhost is at (127\.0\.0\.1|::1), a private/);
  expect(await failure(fetch(`https://localhost:${port}/`))).toMatch(/^localhost is at (127\.0\.0\.1|::1), a private/);
});

test('a redirect is judged like any other address', async () => {
  const inner = await listen();
  const outer = await listen(`http://127.0.0.2:${inner}/`);
  const fetch = fetchRefusing((address) => address === '127.0.0.2');
  expect(await failure(fetch(`http://127.0.0.1:${outer}/`))).toMatch('127.0.0.2 is a private address');
  expect(await (await fetch(`http://127.0.0.1:${inner}/`)).text()).toBe('hello');
});

test('without a guard all addresses are reached, by number and by name', async () => {
  const port = await listen();
  const fetch = fetchRefusing();
  expect(await (await fetch(`http://127.0.0.1:${port}/`)).text()).toBe('hello');
  expect(await (await fetch(`http://localhost:${port}/`, { method: 'POST', body: '{}' })).text()).toBe('hello');
});

test('a guard lets other names through, and leaves unknown ones to the resolver', async () => {
  const port = await listen();
  const fetch = fetchRefusing(() => false);
  expect(await (await fetch(`http://localhost:${port}/`)).text()).toBe('hello');
  expect(await failure(fetch('http://nowhere.invalid/'))).toMatch(/ENOTFOUND|EAI_AGAIN/);
});
