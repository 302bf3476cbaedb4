import { createServer } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { createAgent, createFetch } from './guarded-fetch.ts';
import { isPrivateAddress } from './private-address.ts';

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

test('private addresses are refused, by number and by name, and the error says what to do', async () => {
  const port = await listen();
  const fetch = fetchRefusing(isPrivateAddress);
  const remedy = 'is at a private address: set EVERTURN_ALLOW_PRIVATE_URLS=true, or register the MCP server by name';
  expect(await failure(fetch(`http://127.0.0.1:${port}/`))).toBe(`127.0.0.1 ${remedy}`);
  expect(await failure(fetch(`http://[::ffff:127.0.0.1]:${port}/`))).toBe(`::ffff:7f00:1 ${remedy}`);
  expect(await failure(fetch(`https://localhost:${port}/`))).toBe(`localhost ${remedy}`);
});

test.each([
  '2130706433',
  '0177.0.0.1',
  '0x7f.1',
  '127.1',
  '127.0.0.1.',
  '0',
  '0.0.0.0',
  '[::]',
  '[::1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:0:127.0.0.1]',
  '[64:ff9b::127.0.0.1]',
  '169.254.169.254',
  '100.64.0.1',
  '224.0.0.1',
  'localhost',
  'LOCALHOST',
  '127。0。0。1',
])('a private address is refused in every notation: %s', async (host) => {
  const port = await listen();
  expect(await failure(fetchRefusing(isPrivateAddress)(`http://${host}:${port}/`))).toMatch(/is at a private address/);
});

test('the address of a redirect is checked like any other', async () => {
  const inner = await listen();
  const fetch = fetchRefusing((address) => address !== '127.0.0.1' && isPrivateAddress(address));
  for (const host of ['127.0.0.2', '2130706434', '[::ffff:127.0.0.1]', '[::1]', '0.0.0.0']) {
    const outer = await listen(`http://${host}:${inner}/`);
    expect(await failure(fetch(`http://127.0.0.1:${outer}/`)), host).toMatch('is at a private address');
  }
  expect(await (await fetch(`http://127.0.0.1:${inner}/`)).text()).toBe('hello');
});

test('the address is checked at each connection, because a name may change its address', async () => {
  const port = await listen();
  const judged: string[] = [];
  let isPrivate = false;
  const fetch = fetchRefusing((address) => {
    judged.push(address);
    return isPrivate;
  });
  const close = { headers: { connection: 'close' } };
  expect(await (await fetch(`http://localhost:${port}/`, close)).text()).toBe('hello');
  const addresses = judged.splice(0);
  expect(addresses.length).toBeGreaterThan(0);
  isPrivate = true;
  expect(await failure(fetch(`http://localhost:${port}/`, close))).toMatch('is at a private address');
  expect(judged).toEqual(addresses.slice(0, 1));
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
