import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { SCOPE } from '../../test/support/tool-scope.ts';
import { TestMcpServer } from '../../test/support/mcp-server.ts';
import { TokenServer } from '../../test/support/token-server.ts';
import { McpPool } from './pool.ts';
import { McpRegistry, type McpEndpoint } from './registry.ts';
import type { RegisteredServer } from './registry-file.ts';

const unaborted = new AbortController().signal;
const calling = { operationId: 'turn_1/call_1', signal: unaborted, timeoutMs: 60_000 };

type Auth = Extract<Extract<RegisteredServer, { url: string }>['auth'], { type: 'client_credentials' }>;

async function start(auth: Partial<Auth> = {}, isDiscovered = false) {
  const server = await TokenServer.start();
  let now = 0;
  const logged: string[] = [];
  const log = pino({}, { write: (line) => void logged.push(line) });
  const pool = new McpPool({ allowPrivateUrls: () => false, now: () => now, log });
  onTestFinished(async () => {
    await pool.close();
    await server.stop();
    expect(logged.join('')).not.toMatch(/s3cret|token-\d/);
  });
  const registry = new McpRegistry();
  registry.add('crm', {
    url: server.url,
    auth: {
      type: 'client_credentials',
      ...(isDiscovered ? { issuer: server.origin } : { token_url: `${server.origin}/token` }),
      client_id: 'crm',
      client_secret: 's3cret/+ä',
      ...auth,
    },
  });
  const endpoint = registry.resolve({ type: 'truefoundry-mcp-registry', name: 'crm' })!;
  const call = (to: McpEndpoint = endpoint) => pool.call(to, SCOPE, 'echo', {}, calling);
  return { server, pool, endpoint, call, sleep: (ms: number) => (now += ms) };
}

test('one token is requested with the configured parameters, and all requests carry it', async () => {
  const { server, pool, endpoint, call } = await start({
    scope: 'read write',
    resource: 'https://crm.example/',
    audience: 'crm-api',
  });
  const lists = [pool.tools(endpoint, SCOPE, unaborted), pool.tools(endpoint, SCOPE, unaborted)];
  expect((await Promise.all(lists))[1]?.tools).toHaveLength(8);
  expect(await call()).toMatchObject({ status: 'result' });
  expect(server.asked.map(({ form }) => form)).toEqual([
    {
      grant_type: 'client_credentials',
      scope: 'read write',
      resource: 'https://crm.example/',
      audience: 'crm-api',
    },
  ]);
  expect(new Set(server.used)).toEqual(new Set(['token-1']));
  expect(server.used.length).toBeGreaterThan(2);
});

test.each(['client_secret_basic', 'client_secret_post'])(
  'a token endpoint is discovered, and its way: %s',
  async (way) => {
    const { server, call } = await start({}, true);
    server.methods = [way];
    expect(await call()).toMatchObject({ status: 'result' });
    // The server's metadata names the resource of the token.
    expect(server.asked[0]?.form['resource']).toBe(server.url);
  },
);

test('a token is replaced shortly before it expires', async () => {
  const { server, call, sleep } = await start();
  await call();
  sleep(3600_000 - 30_001);
  await call();
  expect(server.used.at(-1)).toBe('token-1');
  sleep(1);
  await call();
  expect(server.used.at(-1)).toBe('token-2');
});

test('a token without an expiry is kept until it is rejected', async () => {
  const { server, call, sleep } = await start();
  server.expiresIn = undefined;
  await call();
  sleep(10 * 86_400_000);
  await call();
  expect(server.asked).toHaveLength(1);
});

test('a rejected token is replaced once for all calls, and each call is repeated once', async () => {
  const { server, call } = await start();
  await call();
  server.revoke();
  const outcomes = await Promise.all([call(), call(), call()]);
  expect(outcomes.map(({ status }) => status)).toEqual(['result', 'result', 'result']);
  expect(server.asked).toHaveLength(2);
});

test('a call whose new token is rejected too is rejected', async () => {
  const { server, call } = await start();
  await call();
  server.revoke();
  server.answer = { status: 200, body: '{"access_token": "forged", "expires_in": 60}' };
  expect(await call()).toEqual({
    status: 'rejected',
    message: expect.stringMatching(/^MCP server "crm" answered with HTTP 401/),
  });
  // Each call requests a new token once.
  expect(server.asked).toHaveLength(2);
});

test.each([
  [{ status: 500, body: '<h1>s3cret</h1>' }, 'answered with HTTP 500'],
  [{ status: 200, body: '{}' }, 'answered with HTTP 200 and no token'],
  [{ status: 400, body: '{"error": "invalid_scope"}' }, 'rejected the request: invalid_scope'],
])('without a token (%j) the server is unavailable, and the error says why', async (answer, reason) => {
  const { server, pool, endpoint, call } = await start();
  server.answer = answer;
  const message = `MCP server "crm" cannot be used: its token endpoint ${server.origin}/token ${reason}`;
  await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow(message);
  expect(await call()).toEqual({ status: 'not_sent', message });
  expect(server.used).toEqual([]);
});

test('the error for wrong credentials does not contain them', async () => {
  const { pool, endpoint, server } = await start({ client_secret: 'wr0ng' });
  await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow(
    `its token endpoint ${server.origin}/token rejected the request: invalid_client: who are you?`,
  );
});

test('a token endpoint that is down when a token expires leaves the call unsent; it is requested again later', async () => {
  const { server, call, sleep } = await start();
  await call();
  sleep(3600_000);
  server.answer = { status: 503, body: '' };
  const used = server.used.length;
  expect(await call()).toMatchObject({ status: 'not_sent', message: expect.stringContaining('HTTP 503') });
  expect(server.used).toHaveLength(used);
  server.answer = undefined;
  sleep(1_000);
  expect(await call()).toMatchObject({ status: 'result' });
});

test('a token endpoint that is down when a token is rejected leaves the call rejected', async () => {
  const { server, call } = await start();
  await call();
  server.revoke();
  server.answer = { status: 503, body: '' };
  expect(await call()).toMatchObject({ status: 'rejected', message: expect.stringContaining('HTTP 503') });
});

test('the secret is sent to the configured issuer only, whichever authorization server the MCP server names', async () => {
  const { server, endpoint, pool } = await start({}, true);
  const thief = await TokenServer.start();
  onTestFinished(() => thief.stop());
  server.authorizationServer = thief.origin;
  await expect(pool.tools(endpoint, SCOPE, unaborted)).resolves.toBeDefined();
  expect(thief.asked).toEqual([]);
  expect(server.asked).toHaveLength(1);
});

test.each([
  ['names another issuer', { issuer: 'https://other.example' }, 'https://other.example'],
  ['has no token endpoint', { token_endpoint: undefined }, 'failed'],
  ['has one without TLS', { token_endpoint: 'http://login.example/token' }, 'has a token endpoint without TLS'],
])('an issuer whose metadata %s gets no secret', async (_, metadata, reason) => {
  const { server, endpoint, pool } = await start({}, true);
  server.metadata = metadata;
  const error: unknown = await pool.tools(endpoint, SCOPE, unaborted).catch((thrown: unknown) => thrown);
  expect(String(error)).toContain(`MCP server "crm" cannot be used: its authorization server `);
  expect(String(error)).toContain(reason);
  expect(server.asked).toEqual([]);
});

test('an issuer without metadata gets no secret', async () => {
  const silent = await TestMcpServer.start({ tools: [], protocol: '2025-11-25' });
  onTestFinished(() => silent.stop());
  const { server, endpoint, pool } = await start({ issuer: new URL(silent.url).origin }, true);
  await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow('cannot be discovered: set token_url');
  expect(server.asked).toEqual([]);
});
