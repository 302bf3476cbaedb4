import { describe, expect, onTestFinished, test } from 'vitest';
import { TestMcpServer, type TestMcpServerOptions } from '../../test/support/mcp-server.ts';
import { McpPool, McpUnavailableError, type McpPoolOptions } from './mcp-pool.ts';
import { eventually } from '../../test/support/eventually.ts';

const unaborted = new AbortController().signal;
const calling = { operationId: 'turn_1/call_1', signal: unaborted, timeoutMs: 60_000 };

async function start(options: Partial<TestMcpServerOptions> = {}, poolOptions: Partial<McpPoolOptions> = {}) {
  const server = await TestMcpServer.start({ tools: [{ name: 'act' }], ...options });
  const pool = new McpPool({ allowPrivateUrls: () => false, ...poolOptions });
  onTestFinished(async () => {
    await pool.close();
    await server.stop();
  });
  return { server, pool, endpoint: server.endpoint };
}

test('a server of 2026-07-28 has no session, one of 2025-11-25 has', async () => {
  const modern = await start();
  const legacy = await start({ protocol: '2025-11-25' });
  const shown = { id: 'test', name: 'test', transport: 'streamable-http', tools: [{ name: 'act' }] };
  expect(await modern.pool.tools(modern.endpoint, unaborted)).toMatchObject({ ...shown, sessionId: null });
  expect(await legacy.pool.tools(legacy.endpoint, unaborted)).toMatchObject({
    ...shown,
    sessionId: expect.stringMatching(/^[0-9a-f-]{36}$/),
  });
  expect(modern.server.received).not.toContain('initialize');
});

test('one connection serves all who ask for the same URL with the same headers, whatever they call the server', async () => {
  const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
  const secret = { ...endpoint, headers: { authorization: 'Bearer secret' } };
  const endpoints = [endpoint, { ...endpoint, id: 'other', name: 'other' }, secret, { ...secret }];
  const answers = await Promise.all(endpoints.map((one) => pool.tools(one, unaborted)));
  expect(answers.map(({ name }) => name)).toEqual(['test', 'other', 'test', 'test']);
  expect(server.count('initialize')).toBe(2);
  await pool.call(secret, 'act', {}, calling);
  expect(server.calls[0]?.headers.authorization).toBe('Bearer secret');
});

test('an inline server may not use the connection of a registered one at a private address', async () => {
  const { pool, endpoint } = await start();
  await pool.tools(endpoint, unaborted);
  const inline = pool.tools({ ...endpoint, trusted: false }, unaborted);
  await expect(inline).rejects.toThrow('EVERTURN_ALLOW_PRIVATE_URLS');
  const open = await start({}, { allowPrivateUrls: () => true });
  await expect(open.pool.tools({ ...open.endpoint, trusted: false }, unaborted)).resolves.toBeDefined();
});

describe('a server that is down', () => {
  test('is an error that names it and the reason', async () => {
    const { server, pool, endpoint } = await start();
    await server.stop();
    const error: unknown = await pool.tools(endpoint, unaborted).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(McpUnavailableError);
    expect(error).toMatchObject({
      message: 'MCP server "test" refuses connections: is it running?',
      reason: 'refuses connections: is it running?',
    });
  });

  test.each([
    [{ status: 401, body: '{"error":{"message":"Who are you?"}}' }, /HTTP 401; .* authorize us: Who are you\?$/],
    [{ status: 500 }, /HTTP 500$/],
    [{ status: 200, contentType: 'text/html', body: '<h1>' }, /content type/],
  ])('says what it answered: %j', async (fault, message) => {
    const { server, pool, endpoint } = await start();
    server.faults.set('server/discover', fault);
    await expect(pool.tools(endpoint, unaborted)).rejects.toThrow(message);
  });

  test('costs little for a while', async () => {
    let now = 0;
    const { server, pool, endpoint } = await start({}, { now: () => now });
    server.faults.set('server/discover', { status: 500 });
    await expect(pool.tools(endpoint, unaborted)).rejects.toThrow('HTTP 500');
    await expect(pool.tools(endpoint, unaborted)).rejects.toThrow('HTTP 500');
    expect(await pool.call(endpoint, 'act', {}, calling)).toMatchObject({ status: 'not_sent' });
    expect(server.count('server/discover')).toBe(1);
    server.faults.clear();
    now += 1_000;
    expect(await pool.call(endpoint, 'act', {}, calling)).toMatchObject({ status: 'result' });
  });

  test.each(['server/discover', 'initialize', 'notifications/initialized'])(
    'has a limited time to answer %s',
    async (method) => {
      const { server, pool, endpoint } = await start({ protocol: '2025-11-25' }, { answerTimeoutMs: 100 });
      server.faults.set(method, 'stall');
      await expect(pool.tools(endpoint, unaborted)).rejects.toThrow(
        /^MCP server "test" (did not answer within 0.1 s|failed: no MCP handshake within 0.1 s)$/,
      );
    },
  );

  test('is waited for by those who were not aborted', async () => {
    const { server, pool, endpoint } = await start();
    server.faults.set('server/discover', 'stall');
    const abort = new AbortController();
    const gone = pool.tools(endpoint, abort.signal);
    const waiting = pool.tools(endpoint, unaborted);
    await eventually(() => expect(server.received).toEqual(['server/discover']));
    const reason = new Error('enough');
    abort.abort(reason);
    await expect(gone).rejects.toBe(reason);
    await server.stop();
    await expect(waiting).rejects.toThrow('MCP server "test" closed the connection without an answer');
  });
});

test('a connection that nobody uses closes, and another one is opened when it is needed', async () => {
  const { server, pool, endpoint } = await start({ protocol: '2025-11-25' }, { idleMs: 50 });
  await pool.tools(endpoint, unaborted);
  await eventually(() => expect(server.received).toContain('DELETE'));
  expect(await pool.call(endpoint, 'act', {}, calling)).toMatchObject({ status: 'result' });
  expect(server.count('initialize')).toBe(2);
});

test('a connection with a call under way is in use', async () => {
  const { promise, resolve } = Promise.withResolvers<string>();
  const { server, pool, endpoint } = await start(
    { protocol: '2025-11-25', tools: [{ name: 'act', handler: () => promise }] },
    { idleMs: 20 },
  );
  const outcome = pool.call(endpoint, 'act', {}, calling);
  const other = await start({ protocol: '2025-11-25' }, { idleMs: 20 });
  await other.pool.tools(other.endpoint, unaborted);
  await eventually(() => expect(other.server.received).toContain('DELETE'));
  expect(server.received).not.toContain('DELETE');
  resolve('done');
  expect(await outcome).toMatchObject({ status: 'result' });
  await eventually(() => expect(server.received).toContain('DELETE'));
});

test('closing ends sessions and connections, and what is being opened', async () => {
  const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
  await pool.tools(endpoint, unaborted);
  const stalled = await start();
  stalled.server.faults.set('server/discover', 'stall');
  const opening = pool.tools(stalled.endpoint, unaborted).catch((error: unknown) => error);
  await eventually(() => expect(stalled.server.received).toContain('server/discover'));
  await pool.close();
  expect(server.received).toContain('DELETE');
  expect(await opening).toBeInstanceOf(McpUnavailableError);
  await expect(pool.tools(endpoint, unaborted)).rejects.toThrow('shutting down');
});
