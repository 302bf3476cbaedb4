import type { LookupAddress } from 'node:dns';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { connect } from 'node:net';
import os from 'node:os';
import { text } from 'node:stream/consumers';
import { pino } from 'pino';
import { expect, onTestFinished, test, vi } from 'vitest';
import { isPrivateAddress } from '../../../lib/private-address.ts';
import { NetworkProxy, type ProxyRules } from './network-proxy.ts';

/** The addresses of names. */
const dns = vi.hoisted(() => ({ addresses: [] as string[], lookups: [] as string[] }));

vi.mock('node:dns', () => ({
  lookup: (host: string, _options: object, callback: (error: null, found: LookupAddress[]) => void) => {
    dns.lookups.push(host);
    callback(
      null,
      dns.addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    );
  },
}));

/** A loopback address on which no other test listens: connecting to it fails at once. */
const HERE = '127.80.4.43';

async function openProxy(rules: Partial<ProxyRules> = {}): Promise<NetworkProxy> {
  const take = () => () => undefined;
  const log = pino({ level: 'silent' });
  const proxy = await NetworkProxy.open(
    {
      hosts: ['ok.test', '*.wild.test'],
      refuses: isPrivateAddress,
      inTurn: (lookUp) => lookUp(),
      take,
      log,
      ...rules,
    },
    os.tmpdir(),
  );
  onTestFinished(() => proxy.close());
  return proxy;
}

/** The answer to what a client sends. */
async function ask(proxy: NetworkProxy, request: string): Promise<string> {
  const socket = connect(proxy.socket);
  socket.end(request);
  return text(socket);
}

const CONNECT = (target: string) => `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`;
const GET = (target: string, fields = '') =>
  `GET ${target} HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n${fields}\r\n`;

test.each([
  [CONNECT('no.test:443'), 403, 'no.test is not a host'],
  [CONNECT('ok.test.no.test:443'), 403, 'is not a host'],
  [CONNECT('wild.test:443'), 403, 'is not a host'],
  [CONNECT('ok.test:80'), 403, 'to port 443 by CONNECT alone'],
  [CONNECT('ok.test:0443'), 403, 'to port 443 by CONNECT alone'],
  [CONNECT('127.0.0.1:443'), 400, 'not for an address'],
  [CONNECT('[::ffff:127.0.0.1]:443'), 400, 'not for an address'],
  [CONNECT('ok.test@no.test:443'), 400, 'not for an address'],
  [GET('http://no.test/'), 403, 'no.test is not a host'],
  [GET('http://ok.test:443/'), 403, 'to port 80 by http'],
  [GET('http://ok.test:8080/'), 403, 'to port 80 by http'],
  [GET('http://ok.test@no.test/'), 400, 'not for an address'],
  [GET('http://ok.test#@no.test/'), 400, ''],
  [GET('http://2130706433/'), 400, 'not for an address'],
  [GET('http://0x7f.1/'), 400, 'not for an address'],
  [GET('http://[::1]/'), 400, 'not for an address'],
  [GET('https://ok.test/'), 400, 'not for an address'],
  [GET('/'), 400, 'not for an address'],
  [GET('http://ok.test/', 'Transfer-Encoding: gzip, chunked\r\n'), 501, 'chunked'],
  [GET('http://ok.test/', 'Transfer-Encoding: chunked\r\nContent-Length: 3\r\n'), 400, ''],
  [GET('http://ok.test/', `X: ${'x'.repeat(20_000)}\r\n`), 431, ''],
])('%j is refused without looking its name up', async (request, status, reason) => {
  dns.addresses = [HERE];
  dns.lookups.length = 0;
  const answer = await ask(await openProxy({ refuses: () => false }), request);
  expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} .*${reason}`));
  expect(dns.lookups).toEqual([]);
});

test.each([
  ['loopback', [HERE]],
  ['of a metadata service', ['169.254.169.254']],
  ['mapped into IPv6', [`::ffff:${HERE}`]],
  ['one of several', ['93.184.215.14', HERE]],
])('a host that is allowed is refused at a private address, %s', async (_, addresses) => {
  dns.addresses = addresses;
  const proxy = await openProxy();
  for (const request of [CONNECT('ok.test:443'), CONNECT('a.wild.test:443'), GET('http://OK.test./')]) {
    expect(await ask(proxy, request)).toMatch(/^HTTP\/1.1 403 everturn: (ok|a.wild).test is at a private address/);
  }
});

test('a host is looked up once, and no other address is connected to', async () => {
  dns.addresses = [HERE];
  dns.lookups.length = 0;
  const seen: string[] = [];
  const refuses = (address: string) => {
    seen.push(address);
    // The addresses of the name from now on.
    dns.addresses = ['127.80.4.44'];
    return false;
  };
  const proxy = await openProxy({ refuses });
  expect(await ask(proxy, CONNECT('ok.test:443'))).toMatch(
    /^HTTP\/1.1 502 .*no connection to ok.test could be made \(ECONNREFUSED\)/,
  );
  expect([dns.lookups, seen]).toEqual([['ok.test'], [HERE]]);
});

test('a sandbox with too many connections gets an error, and a place is free again once one is closed', async () => {
  dns.addresses = [HERE];
  let free = 1;
  const take = () => {
    if (free === 0) return undefined;
    free -= 1;
    return () => void (free += 1);
  };
  const proxy = await openProxy({ refuses: () => false, take });
  const first = connect(proxy.socket);
  await expect.poll(() => free).toBe(0);
  expect(await ask(proxy, CONNECT('ok.test:443'))).toMatch(
    /^HTTP\/1.1 503 everturn: the sandbox has too many connections/,
  );
  expect(await ask(proxy, GET('http://ok.test/'))).toMatch(/^HTTP\/1.1 503 /);
  first.destroy();
  await expect.poll(() => free).toBe(1);
  expect(await ask(proxy, CONNECT('ok.test:443'))).toMatch(/^HTTP\/1.1 502 /);
});

test('a proxy that is closed closes its connections, and leaves nothing', async () => {
  const proxy = await openProxy();
  const client = connect(proxy.socket);
  client.write(GET('http://no.test/').replace('close', 'keep-alive'));
  await once(client, 'data');
  const ended = once(client, 'close');
  await proxy.close();
  await ended;
  await expect(stat(proxy.socket)).rejects.toThrow('ENOENT');
});
