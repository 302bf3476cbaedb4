import { setImmediate } from 'node:timers/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { SCOPE } from '../../test/support/tool-scope.ts';
import { TestMcpServer, type TestMcpServerOptions } from '../../test/support/mcp-server.ts';
import { McpPool, type McpPoolOptions } from './pool.ts';
import { eventually } from '../../test/support/eventually.ts';

async function start(options: Partial<TestMcpServerOptions>, poolOptions: Partial<McpPoolOptions> = {}) {
  const server = await TestMcpServer.start({ tools: [{ name: 'a' }], ...options });
  const pool = new McpPool({ allowPrivateUrls: () => false, ...poolOptions });
  onTestFinished(async () => {
    await pool.close();
    await server.stop();
  });
  const names = async (): Promise<string[]> => {
    const { tools } = await pool.tools(server.endpoint, SCOPE, new AbortController().signal);
    return tools.map(({ name }) => name);
  };
  /** Lists until the list is cached: the first one is invalidated when the server acknowledges the subscription. */
  const settle = async (): Promise<number> => {
    await eventually(async () => {
      await names();
      const before = server.count('tools/list');
      await names();
      const subscribed = server.received.includes('subscriptions/listen') || server.received.includes('GET');
      expect([server.count('tools/list'), subscribed]).toEqual([before, true]);
    });
    return server.count('tools/list');
  };
  return { server, pool, names, settle };
}

describe.each(['2026-07-28', '2025-11-25'] as const)('the tools of a server of %s', (protocol) => {
  test('are those of all pages, with all their fields', async () => {
    const tools = ['a', 'b', 'c', 'd', 'e'].map((name) => ({
      name,
      description: `does ${name}`,
      inputSchema: { type: 'object' as const, properties: { x: { type: 'string' } } },
      annotations: { readOnlyHint: true },
    }));
    const { server, pool } = await start({ protocol, tools, pageSize: 2 });
    const listed = await pool.tools(server.endpoint, SCOPE, new AbortController().signal);
    expect(listed.tools).toEqual(tools);
    expect(server.count('tools/list')).toBe(3);
  });

  test('are listed once for all concurrent callers', async () => {
    const { server, names } = await start({ protocol });
    await Promise.all([names(), names(), names()]);
    expect(server.count('tools/list')).toBe(1);
    expect(server.count('server/discover')).toBe(1);
  });

  test('are cached, and listed again when the server reports a change', async () => {
    const { server, names, settle } = await start({ protocol });
    const lists = await settle();
    await server.setTools([{ name: 'b' }]);
    await eventually(async () => expect(await names()).toEqual(['b']));
    expect(await names()).toEqual(['b']);
    expect(server.count('tools/list')).toBe(lists + 1);
  });

  test('are listed again when they are old', async () => {
    let now = 0;
    const { server, names, settle } = await start({ protocol }, { listMaxAgeMs: 60_000, now: () => now });
    const lists = await settle();
    now += 59_999;
    await names();
    expect(server.count('tools/list')).toBe(lists);
    now += 1;
    await names();
    expect(server.count('tools/list')).toBe(lists + 1);
  });

  test('are listed again when they changed during the listing', async () => {
    let now = 0;
    const { server, pool, names, settle } = await start({ protocol }, { now: () => now });
    await settle();
    now += 60_000;
    const told = Promise.withResolvers<void>();
    server.faults.set('tools/list', { until: told.promise });
    const lists = server.count('tools/list');
    const listing = names();
    await eventually(() => expect(server.count('tools/list')).toBe(lists + 1));
    await server.setTools([{ name: 'b' }]);
    // The notification arrives before the answer to a later request.
    const calling = { operationId: 'turn_1/call_1', signal: new AbortController().signal, timeoutMs: 60_000 };
    await pool.call(server.endpoint, SCOPE, 'b', {}, calling);
    server.faults.clear();
    told.resolve();
    expect(await listing).toEqual(['a']);
    expect(await names()).toEqual(['b']);
  });

  test('are listed again after a restart, and changes are reported as before', async () => {
    let now = 0;
    const { server, names, settle } = await start({ protocol }, { now: () => now });
    await settle();
    await server.stop();
    await server.setTools([{ name: 'b' }]);
    await server.restart();
    // Only the end of a subscription shows that the server was down.
    if (protocol === '2025-11-25') now += 60_000;
    await eventually(async () => expect(await names()).toEqual(['b']));
    await settle();
    await server.setTools([{ name: 'c' }]);
    await eventually(async () => expect(await names()).toEqual(['c']));
  });

  test('are an error that is cached briefly when the server fails to list them', async () => {
    let now = 0;
    const { server, names } = await start({ protocol }, { now: () => now });
    server.faults.set('tools/list', { status: 500, body: 'no disk' });
    await expect(names()).rejects.toThrow('MCP server "test" answered with HTTP 500: no disk');
    await expect(names()).rejects.toThrow('HTTP 500');
    expect(server.count('tools/list')).toBe(1);
    server.faults.clear();
    now += 1_000;
    expect(await names()).toEqual(['a']);
  });

  test('are an error when listing them takes too long', async () => {
    let now = 0;
    const { server, names, settle } = await start(
      { protocol },
      { responseTimeoutMs: 3_600_000, firstWaitMs: Infinity, now: () => now },
    );
    const lists = await settle();
    now += 60_000;
    server.faults.set('tools/list', 'stall');
    // The time-out is a timer of the SDK, and a signal aborts the request after it: both expire once the request has
    // arrived.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const giveUp = new AbortController();
    const timeoutSignal = vi.spyOn(AbortSignal, 'timeout').mockReturnValue(giveUp.signal);
    onTestFinished(() => {
      vi.useRealTimers();
      timeoutSignal.mockRestore();
    });
    const listing = names();
    while (server.count('tools/list') === lists) await setImmediate();
    vi.advanceTimersByTime(3_600_000);
    await expect(listing).rejects.toThrow('MCP server "test" did not answer within 3600 s');
    vi.useRealTimers();
    giveUp.abort();
    // The stream for notifications of changes stays open, for servers of both versions.
    await eventually(() => expect(server.openRequests).toBe(1));
  });

  test('are no longer awaited when the signal is aborted', async () => {
    const { server, pool } = await start({ protocol });
    server.faults.set('tools/list', 'stall');
    const abort = new AbortController();
    const listing = pool.tools(server.endpoint, SCOPE, abort.signal);
    await eventually(() => expect(server.received).toContain('tools/list'));
    const reason = new Error('enough');
    abort.abort(reason);
    await expect(listing).rejects.toBe(reason);
  });
});

test('a rejected subscription is not requested at every step', async () => {
  const { server, names } = await start({});
  server.faults.set('subscriptions/listen', { status: 500 });
  await names();
  await eventually(() => expect(server.received).toContain('subscriptions/listen'));
  await names();
  await names();
  expect(server.count('subscriptions/listen')).toBe(1);
  expect(server.count('tools/list')).toBe(1);
});

test('a session that is lost is replaced to list the tools', async () => {
  const { server, pool, names } = await start({ protocol: '2025-11-25' }, { listMaxAgeMs: 0 });
  const first = await pool.tools(server.endpoint, SCOPE, new AbortController().signal);
  server.forgetSessions();
  expect(await names()).toEqual(['a']);
  const { sessionId } = await pool.tools(server.endpoint, SCOPE, new AbortController().signal);
  expect(sessionId).not.toBe(first.sessionId);
  expect(server.count('initialize')).toBe(2);
});
