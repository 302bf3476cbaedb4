import { createSocket } from 'node:dgram';
import dns from 'node:dns';
import { once } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SandboxNetwork, HostNetwork } from '../../../src/features/code/kernel/sandbox-network.ts';
import type { Kernel } from '../../../src/features/code/kernel/kernel.ts';
import { NEVER_ABORTED } from '../../../src/lib/abort.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { endOf, openSandbox, wallOf, type TestSandbox } from '../../support/kernels.ts';
import { startOpenProxy } from '../../support/open-proxy.ts';
import { openWebPorts, type WebPorts } from '../../support/web-ports.ts';
import { commandOf } from './command-escapes.ts';
import { openEscapeTarget, type EscapeTarget } from './escape-target.ts';
import { cellOf } from './escapes.ts';
import { NETWORK_COMMAND_ESCAPES, NETWORK_ESCAPES, NETWORK_PREAMBLE } from './network-escapes.ts';

const TIMEOUT_MS = 20_000;

const log = pino({ level: 'silent' });

let web: WebPorts;
/** All names are found at the loopback, so that a name is refused by nothing but the rules. */
const { lookup } = dns;
function findBy(found: typeof dns.lookup): void {
  dns.lookup = found;
  syncBuiltinESMExports();
}
beforeAll(async () => {
  // The first test run on a machine builds it.
  await kernelPython();
  web = await openWebPorts();
  const atLoopback = (_: string, options: dns.LookupOptions, callback: (...found: unknown[]) => void) =>
    lookup('127.0.0.1', options, callback);
  findBy(atLoopback as typeof lookup);
}, BUILDS_PYTHON);
afterAll(() => {
  findBy(lookup);
  web.close();
});

/** The reachable parts of the network, where private addresses are allowed unless stated otherwise. */
function allowing(hosts: string[], { allowPrivate = true } = {}) {
  const host = new HostNetwork({ maximum: 'any', allowPrivate: () => allowPrivate, log });
  return new SandboxNetwork(host, os.tmpdir()).allowing(hosts);
}

async function outputOf(kernel: Kernel, id: string, code: string): Promise<string> {
  const end = await endOf(kernel.run({ id, code }, { timeoutMs: TIMEOUT_MS, onOutput: () => {} }));
  expect(end.exit, JSON.stringify(end)).toBe('ok');
  return end.parts.map(({ text }) => text).join('');
}

describe.each([
  { wall: 'sandbox', succeeds: false },
  // What fails here, too, would prove nothing about the wall and the proxy.
  { wall: 'none', succeeds: true },
] as const)(
  'with one host of the network and the wall $wall (succeeds: $succeeds), an attempt',
  ({ wall, succeeds }) => {
    let sandbox: TestSandbox;
    let target: EscapeTarget;
    let kernel: Kernel;
    let runs: (body: string) => Promise<string>;
    const cleanup = new AsyncDisposableStack();

    beforeAll(async () => {
      const found = await wallOf(wall);
      sandbox = await openSandbox(found);
      cleanup.defer(() => sandbox.remove());
      target = await openEscapeTarget(found, sandbox);
      cleanup.defer(() => target.remove());
      const nameServer = createSocket('udp4', (_, { port, address }) => nameServer.send('answer', port, address));
      cleanup.defer(() => void nameServer.close());
      await once(nameServer.bind(0, '127.0.0.1'), 'listening');
      const otherProxy = await allowing(['other.test'])?.openProxy();
      cleanup.defer(() => otherProxy?.close());
      const openProxy = await startOpenProxy();
      cleanup.defer(openProxy.close);
      const targets = {
        ...(JSON.parse(target.forKernel) as Record<string, unknown>),
        dns: nameServer.address().port,
        otherProxy: otherProxy?.socket,
      };
      const isOpen = wall === 'none';
      const network = isOpen ? undefined : allowing(['localhost']);
      const proxy = isOpen ? { HTTP_PROXY: openProxy.url, http_proxy: openProxy.url } : {};
      kernel = await sandbox.startKernel({ env: { TARGET: JSON.stringify(targets), ...proxy }, network });
      await outputOf(kernel, 'preamble', NETWORK_PREAMBLE);
      const runner = sandbox.commandRunner();
      const named = Object.entries(targets).map(([name, value]) => [`T_${name}`, String(value)]);
      const env = { ...(Object.fromEntries(named) as Record<string, string>), ...proxy };
      const cwd = isOpen ? sandbox.folders.workspace : '/workspace';
      runs = async (body) => {
        const bounds = { timeoutMs: TIMEOUT_MS, outputBytes: 65_536, signal: NEVER_ABORTED };
        return (await runner.run({ text: commandOf({ body }), cwd, env, network, ...bounds })).output;
      };
    });

    afterAll(() => cleanup.disposeAsync());

    it('at what is allowed succeeds in any case', async () => {
      const code =
        'print("reached GET localhost" in gets("http://localhost/", "Connection: close"), tunnels("localhost:443"))';
      expect(await outputOf(kernel, 'allowed', code)).toBe('True True\n');
      // Its body stays part of it.
      const framed =
        'print(gets("http://localhost/", "Transfer-Encoding: chunked", body="3\\r\\nabc\\r\\n0\\r\\n\\r\\n").count("HTTP/1.1"))';
      expect(await outputOf(kernel, 'framed', framed)).toBe('1\n');
      expect(await runs('curl --fail --silent http://localhost/')).toMatch(/^True$/m);
    });

    it.each(NETWORK_ESCAPES)('$id', async ({ id, code }) => {
      expect(await outputOf(kernel, id, cellOf({ id, code }))).toMatch(succeeds ? /^True$/m : /^False$/m);
    });

    it.each(NETWORK_COMMAND_ESCAPES)('$id', async ({ body }) => {
      expect(await runs(body)).toMatch(succeeds ? /^True$/m : /^False$/m);
    });
  },
);

it('the filter of addresses alone refuses a host that is allowed', async () => {
  const sandbox = await openSandbox(await wallOf('sandbox'));
  const kernel = await sandbox.startKernel({ network: allowing(['localhost'], { allowPrivate: false }) });
  await outputOf(kernel, 'preamble', NETWORK_PREAMBLE.replace('os.environ["TARGET"]', '"{}"'));
  const code = 'print(gets("http://localhost/"))\nprint(through("CONNECT localhost:443 HTTP/1.1", "Host: localhost"))';
  const output = await outputOf(kernel, 'private', code);
  expect(output.match(/403 everturn: localhost is at a private address/g)).toHaveLength(2);
  await sandbox.remove();
});

it.each(['confined', 'sharing', 'none'] as const)('no kernel starts with the network and the wall %s', async (wall) => {
  const sandbox = await openSandbox(await wallOf(wall));
  await expect(sandbox.startKernel({ network: allowing(['localhost']) })).rejects.toThrow(
    /only behind the wall of bubblewrap/,
  );
  await sandbox.remove();
});
