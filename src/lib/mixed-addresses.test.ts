import type { LookupAddress } from 'node:dns';
import { createServer } from 'node:http';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createAgent, createFetch, RefusedAddressError } from './guarded-fetch.ts';

const dns = vi.hoisted(() => ({ addresses: [] as string[] }));

vi.mock('node:dns', () => ({
  lookup: (_host: string, _options: object, callback: (error: null, found: LookupAddress[]) => void) =>
    callback(
      null,
      dns.addresses.map((address) => ({ address, family: 4 })),
    ),
}));

/** The public address, as far as the guard is concerned: it has to be one that a connection could be made to. */
const PUBLIC = '127.0.0.1';
const PRIVATE = '127.0.0.2';

/** Fetches from a server that listens at all addresses, under a name that resolves to these. */
async function fetchFrom(addresses: string[]): Promise<string> {
  dns.addresses = addresses;
  const server = createServer((_request, response) => void response.end('hello'));
  await new Promise<void>((listening) => server.listen(0, '0.0.0.0', listening));
  const agent = createAgent({ connectTimeoutMs: 10_000, refuses: (address) => address === PRIVATE });
  onTestFinished(async () => {
    await agent.destroy();
    server.close();
  });
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('not listening');
  return (await createFetch(agent)(`http://mixed.test:${address.port}/`)).text();
}

// A connection may be made to any address of a host, whichever answers first.
test.each([
  ['first', [PRIVATE, PUBLIC]],
  ['last', [PUBLIC, PRIVATE]],
  ['between others', [PUBLIC, PRIVATE, PUBLIC]],
])('a host is refused for one private address among public ones: %s', async (_, addresses) => {
  await expect(fetchFrom(addresses)).rejects.toMatchObject({ cause: expect.any(RefusedAddressError) });
});

test('a host with several public addresses is reached', async () => {
  expect(await fetchFrom([PUBLIC, PUBLIC])).toBe('hello');
});
