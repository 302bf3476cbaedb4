import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../../src/engine/new-id.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { cellTurn, responsesIn } from '../../support/code-turns.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import type { TestServer } from '../../support/test-server.ts';
import { openWebPorts, type WebPorts } from '../../support/web-ports.ts';

let server: TestServer;
let web: WebPorts;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  web = await openWebPorts();
  server = await startCodeServer({
    EVERTURN_KERNEL_NETWORK: 'localhost,*.test',
    EVERTURN_ALLOW_PRIVATE_URLS: 'true',
  });
}, BUILDS_PYTHON);
afterAll(async () => {
  await server.stop();
  web.close();
});

const agent = (...allow: string[]) => ({ code_actions: { approvals: 'allow' as const, network: { allow } } });

/** Fetches by libraries and programs without any support for Everturn. */
const FETCHES = [
  'import urllib.request\nprint(urllib.request.urlopen("http://localhost/from-code", timeout=20).read().decode())',
  '!curl --silent --show-error http://localhost/from-curl',
  '!python -m pip download --quiet --no-cache-dir --retries 0 --index-url http://localhost/simple nothing',
];
const OTHERS = [
  'urllib.request.urlopen("http://other.test/", timeout=20)',
  'urllib.request.urlopen("https://other.test/", timeout=20)',
  `urllib.request.urlopen("http://localhost:PORT/", timeout=20)`,
  'import socket\nsocket.create_connection(("127.0.0.1", PORT), timeout=20)',
];

test('code and commands reach the host that their agent allows, and only that', async () => {
  const chat = await server.chat({ spec: agent('localhost', 'absent.test') });
  const others = OTHERS.map((code) => code.replace('PORT', String(web.otherPort)));
  const events = await cellTurn(chat, [...FETCHES, ...others]);
  expect(events.find(({ type }) => type === 'sandbox.created')).toMatchObject({
    isolation: 'sandbox',
    network: ['localhost', 'absent.test'],
  });
  expect(JSON.stringify(chat.requests()[0])).toContain('these hosts: localhost, absent.test');
  const [code, curl, , byHttp, byHttps, otherPort, direct] = responsesIn(events).map(({ content }) => content);
  expect(code).toBe('reached GET localhost /from-code');
  expect(curl).toBe('reached GET localhost /from-curl');
  expect(web.requests.map(({ url }) => url)).toContain('/simple/nothing/');
  expect(byHttp).toContain('HTTP Error 403: everturn: other.test is not a host that the agent allows its code');
  expect(byHttps).toContain('Tunnel connection failed: 403 everturn: other.test is not a host');
  expect(otherPort).toContain('HTTP Error 403: everturn: code may connect to port 80 by http');
  expect(direct).toMatch(/PermissionError: .*Permission denied/);
});

test('without `network.allow` every connection fails', async () => {
  const before = web.requests.length;
  const chat = await server.chat({ spec: agent() });
  const direct = 'import socket\nsocket.create_connection(("127.0.0.1", 80), timeout=20)';
  const events = await cellTurn(chat, [...FETCHES, direct]);
  expect(events.find(({ type }) => type === 'sandbox.created')).toMatchObject({ network: [] });
  const [code, curl, , connection] = responsesIn(events);
  expect(code?.execution?.error).toMatchObject({ name: 'URLError' });
  expect(curl?.content).toContain('Failed to connect to localhost');
  expect(connection?.execution?.error).toEqual({
    name: 'PermissionError',
    message: '[Errno 1] Operation not permitted',
  });
  expect(web.requests.length).toBe(before);
});

test('an agent with other hosts than the operator allows is rejected', async () => {
  const rejected = async (allow: string[]) => {
    const { status, body } = await server.api.send('PUT', `/v1/agents/${newId('req')}`, {
      model: { name: 'any' },
      ...agent(...allow),
    });
    return [status, body.error.code, body.error.param];
  };
  expect(await rejected(['a.test', 'pypi.org'])).toEqual([422, 'invalid_agent', 'code_actions.network.allow.1']);
  expect(await rejected(['127.0.0.1'])).toEqual([400, 'invalid_request', 'code_actions.network.allow.0']);
});
