import { afterAll, beforeAll, expect, test } from 'vitest';
import { createLogger } from '../../src/telemetry/logger.ts';
import { keptPort } from '../support/kept-port.ts';
import { exchange } from '../support/raw-http.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
const logged: string[] = [];
/** A server as another MCP host writes it into its file. */
const copied = { command: 'true', disabled: true };
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEY: 'key-of-a-client' },
    servers: { copied },
    log: createLogger({ logLevel: 'warn' }, { write: (line) => void logged.push(line) }),
  });
});
afterAll(() => server.stop());

const request = (...headers: string[]) =>
  exchange(server.api.url, `GET /v1/agents/demo HTTP/1.1\r\n${[...headers, 'connection: close'].join('\r\n')}\r\n\r\n`);

test('a server without keys accepts requests from its own machine', async () => {
  for (const host of ['localhost', 'LocalHost:8080', '127.0.0.1:80', '127.1.2.3', '[::1]', '[::1]:8080']) {
    expect((await request(`host: ${host}`)).status, host).toBe(200);
    expect((await request(`host: ${host}`, `origin: http://${host.toLowerCase()}`)).status, host).toBe(200);
  }
});

test('a start logs once what is set without an effect: the key of a client, and a disabled MCP server', () => {
  expect(logged.filter((line) => line.includes('EVERTURN_API_KEYS'))).toHaveLength(1);
  expect(logged.filter((line) => line.includes('servers.copied is disabled'))).toHaveLength(1);
});

test('a server without keys rejects web pages that use another host name or have another origin', async () => {
  const elsewhere = [
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'localhost@evil.example',
    '8.8.8.8',
  ];
  for (const host of [
    ...elsewhere,
    '[::2]',
    '::1',
    'evil@127.0.0.1',
    '127.0.0.1:1/x',
    'localhost:',
    '127.0.0.1.',
    '',
  ]) {
    const { status, body } = await request(`host: ${host}`);
    expect([status, body.error.code], host).toEqual([400, 'not_local']);
    expect(body.error.message).toMatch(/EVERTURN_API_KEYS/);
  }
  const origins = ['http://localhost:3000', 'https://localhost', 'chrome-extension://localhost', 'null', 'file://', ''];
  for (const origin of [...elsewhere.map((host) => `https://${host}`), ...origins]) {
    const { status, body } = await request('host: localhost', `origin: ${origin}`);
    expect([status, body.error.code], origin).toEqual([400, 'not_local']);
  }
});

test('without keys web pages of other origins cannot write, and clients that are no browsers can, whatever their content type', async () => {
  const post = (...headers: string[]) => {
    const lines = ['host: localhost:8080', 'content-length: 2', 'connection: close', ...headers];
    return exchange(server.api.url, `POST /v1/agents/sessions HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n{}`);
  };
  for (const headers of [
    ['origin: http://localhost:3000', 'content-type: text/plain'],
    ['origin: http://127.0.0.1:8080'],
    ['sec-fetch-site: same-site'],
    ['sec-fetch-site: cross-site'],
  ]) {
    expect((await post(...headers)).body.error.code, headers.join()).toBe('not_local');
  }
  for (const headers of [
    ['content-type: application/x-www-form-urlencoded'],
    ['origin: http://localhost:8080', 'sec-fetch-site: same-origin'],
    ['sec-fetch-site: none'],
  ]) {
    expect((await post(...headers)).body.error.code, headers.join()).toBe('invalid_request');
  }
  expect((await request('host: localhost', 'sec-fetch-site: cross-site')).status).toBe(200);
});

test('the port for operators rejects web pages whose host name only resolves to it', async () => {
  const port = await keptPort();
  await server.restart({ EVERTURN_METRICS_PORT: String(port) });
  const scrape = (host: string) =>
    exchange(`http://127.0.0.1:${port}`, `GET /healthz HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n\r\n`);
  expect((await scrape('evil.example')).status).toBe(400);
  expect((await scrape(`localhost:${port}`)).status).toBe(200);
});

test('a server without keys, on which everybody is one subject, takes no policy that excludes requesters', async () => {
  const policyOf = (policy: object) => ({
    model: { name: 'm' },
    config: { pause: 'wait', decision_policies: [{ match: { tool: '*' }, decision: 'ask', ...policy }] },
  });
  const { status, body } = await server.api.send('PUT', '/v1/agents/four-eyes', policyOf({ exclude_requester: true }));
  const param = 'config.decision_policies.0.exclude_requester';
  expect([status, body.error.code, body.error.param]).toEqual([422, 'invalid_agent', param]);
  const { body: warned } = await server.api.send(
    'PUT',
    '/v1/agents/two',
    policyOf({ approvers: { subjects: ['local'] }, quorum: 2 }),
  );
  expect(warned.data.warnings).toEqual([expect.stringContaining('at most 1 may decide')]);
});
