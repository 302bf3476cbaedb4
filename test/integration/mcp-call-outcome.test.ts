import { createServer } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { SCOPE } from '../support/tool-scope.ts';
import { TestMcpServer, type Fault, type TestMcpServerOptions } from '../support/mcp-server.ts';
import type { CallOptions } from '../../src/mcp/connection.ts';
import { McpPool, type McpPoolOptions } from '../../src/mcp/pool.ts';
import { eventually } from '../support/eventually.ts';

async function start(options: Partial<TestMcpServerOptions>, poolOptions: Partial<McpPoolOptions> = {}) {
  const server = await TestMcpServer.start({ tools: [{ name: 'act' }], ...options });
  const pool = new McpPool({ allowPrivateUrls: () => false, ...poolOptions });
  onTestFinished(async () => {
    await pool.close();
    await server.stop();
  });
  return { server, pool, endpoint: server.endpoint };
}

/** A response without one would be used, and the call be of unknown outcome. */
async function connectionsAreSeenToBeCut(): Promise<void> {
  for (let turns = 0; turns < 3; turns++) await setImmediate();
}

function calling(options: Partial<CallOptions> = {}): CallOptions {
  return { operationId: 'turn_1/call_1', signal: new AbortController().signal, timeoutMs: 60_000, ...options };
}

const KINDS: [string, Partial<TestMcpServerOptions>][] = [
  ['2026-07-28 in JSON', { protocol: '2026-07-28' }],
  ['2026-07-28 in event streams', { protocol: '2026-07-28', answers: 'sse' }],
  ['2025-11-25', { protocol: '2025-11-25' }],
];

describe.each(KINDS)('a call to a server of %s', (_, kind) => {
  test('returns the result of the tool', async () => {
    const content = [{ type: 'text' as const, text: 'no' }];
    const { server, pool, endpoint } = await start({
      ...kind,
      tools: [
        { name: 'act', handler: ({ city }) => `done in ${String(city)}` },
        { name: 'fail', handler: () => ({ content, isError: true, structuredContent: { why: 1 } }) },
      ],
    });
    expect(await pool.call(endpoint, SCOPE, 'act', { city: 'Kyoto' }, calling())).toMatchObject({
      status: 'result',
      isError: false,
      content: [{ type: 'text', text: 'done in Kyoto' }],
    });
    expect(await pool.call(endpoint, SCOPE, 'fail', {}, calling())).toMatchObject({
      status: 'result',
      isError: true,
      content,
      structuredContent: { why: 1 },
    });
    expect(server.calls.map(({ tool }) => tool)).toEqual(['act', 'fail']);
  });

  test('is rejected when the server responds with an error', async () => {
    const fail = (): never => {
      throw new Error('out of paper');
    };
    const { pool, endpoint } = await start({ ...kind, tools: [{ name: 'act', handler: fail }] });
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({
      status: 'rejected',
      message: 'MCP server "test" answered with an error: out of paper',
    });
    const unknown = await pool.call(endpoint, SCOPE, 'other', {}, calling());
    expect(unknown).toMatchObject({ status: 'rejected', message: expect.stringContaining('Unknown tool: other') });
  });

  test.each([400, 401, 403, 413, 429])('is rejected by HTTP %i', async (status) => {
    const { server, pool, endpoint } = await start(kind);
    server.faults.set('tools/call', { status, body: 'not now' });
    const outcome = await pool.call(endpoint, SCOPE, 'act', {}, calling());
    expect(outcome).toMatchObject({ status: 'rejected', message: expect.stringMatching(`HTTP ${status}.*: not now$`) });
    expect(server.count('tools/call')).toBe(1);
  });

  test('is rejected by HTTP 403 that names what is missing', async () => {
    const { server, pool, endpoint } = await start(kind);
    const headers = { 'www-authenticate': 'Bearer error="insufficient_scope", scope="write"' };
    server.faults.set('tools/call', { status: 403, headers });
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'rejected' });
    expect(server.count('tools/call')).toBe(1);
  });

  test('is not repeated for an error of the tool that resembles one about headers', async () => {
    const fail = (): never => {
      throw Object.assign(new Error('no'), { code: -32020 });
    };
    // Servers of 2025-11-25 have no such headers.
    const region = { type: 'string', ...(kind.protocol === '2025-11-25' && { 'x-mcp-header': 'Region' }) };
    const inputSchema = { type: 'object' as const, properties: { region } };
    const { server, pool, endpoint } = await start({ ...kind, tools: [{ name: 'act', inputSchema, handler: fail }] });
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'rejected' });
    await pool.tools(endpoint, SCOPE, calling().signal);
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'rejected' });
    expect(server.calls).toHaveLength(2);
  });

  test('has a result when the server has answered with none that can be read', async () => {
    const { server, pool, endpoint } = await start(kind);
    for (const result of [
      { resultType: 'complete' },
      { resultType: 'later', content: [] },
      { content: 7 },
      { content: [], _meta: 7 },
    ]) {
      server.faults.set('tools/call', { result });
      expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'result' });
    }
  });

  test('may read a resource, with the same outcomes', async () => {
    const { promise: never } = Promise.withResolvers();
    const resources = { 'a:quick': Promise.resolve(), 'a:slow': never };
    const { server, pool, endpoint } = await start({ ...kind, resources });
    const read = (uri: string, options: Partial<CallOptions> = {}) =>
      pool.call(endpoint, SCOPE, 'read_resource', { uri }, calling(options));
    const content = [{ type: 'resource', resource: { uri: 'a:quick', text: 'a:quick' } }];
    expect(await read('a:quick')).toMatchObject({ status: 'result', isError: false, content });
    expect(await read('a:none')).toMatchObject({ status: 'rejected', message: expect.stringContaining('no a:none') });
    const cancel = new AbortController();
    const slow = read('a:slow', { signal: cancel.signal });
    await eventually(() => expect(server.count('resources/read')).toBe(3));
    cancel.abort();
    expect(await slow).toMatchObject({
      status: 'unknown',
      message: expect.stringContaining('when the call was cancelled'),
    });
    server.faults.set('resources/read', 'swallow');
    expect(await read('a:quick')).toMatchObject({ status: 'unknown' });
    expect([server.count('resources/read'), server.count('tools/call')]).toEqual([4, 0]);
  });

  const VAGUE: [string, Fault, RegExp][] = [
    ['cuts the connection after the effect', 'swallow', /closed the connection|ended its reply/],
    ['cuts the connection before the effect', 'drop', /closed the connection/],
    ['answers 202', { status: 202 }, /ended its reply without an answer/],
    ['answers 202 with a stream', { status: 202, contentType: 'text/event-stream' }, /ended its reply/],
    ['answers 200 with nothing', { status: 200, contentType: 'application/json' }, /failed/],
    ['answers 200 with a page', { status: 200, contentType: 'text/html', body: '<p>' }, /content type/],
    [
      'answers something else',
      { status: 200, contentType: 'application/json', body: '{"jsonrpc":"2.0","id":"x","result":{}}' },
      /without an answer/,
    ],
    ['breaks its stream', { status: 200, contentType: 'text/event-stream', body: ': hello' }, /without an answer/],
    ['sends elsewhere', { status: 303 }, /HTTP 303/],
    ['answers 408', { status: 408 }, /HTTP 408/],
    ['answers 499', { status: 499 }, /HTTP 499/],
    ['answers 500', { status: 500 }, /HTTP 500/],
    ['answers 502', { status: 502, body: '<html>' }, /HTTP 502$/],
    ['answers 503', { status: 503, body: 'busy' }, /HTTP 503: busy$/],
  ];
  test.each(VAGUE)('is of unknown outcome when the server %s, and is not repeated', async (_what, fault, message) => {
    const { server, pool, endpoint } = await start(kind);
    await pool.tools(endpoint, SCOPE, calling().signal); // so that the call uses an existing connection
    server.faults.set('tools/call', fault);
    const outcome = await pool.call(endpoint, SCOPE, 'act', {}, calling());
    expect(outcome).toMatchObject({ status: 'unknown', message: expect.stringMatching(message) });
    expect(server.count('tools/call')).toBe(1);
    expect(server.calls).toHaveLength(fault === 'swallow' ? 1 : 0);
    server.faults.clear();
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'result' });
  });

  test('has more time while its server reports progress, up to a total', async () => {
    const { promise: never } = Promise.withResolvers<string>();
    const reporting = new Map<unknown, () => Promise<void>>();
    const allRun = Promise.withResolvers<void>();
    const { server, pool, endpoint } = await start({
      ...kind,
      tools: [
        {
          name: 'act',
          handler: ({ id }, { progress }) => {
            reporting.set(id, () => progress(1));
            if (reporting.size === 3) allRun.resolve();
            return never;
          },
        },
      ],
    });
    // The time-outs are of this clock; the server and the connection do not use it.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const begun = performance.now();
    let heard = Promise.withResolvers<void>();
    const times = { timeoutMs: 400, totalTimeoutMs: 1_000, onProgress: () => heard.resolve() };
    const [busy, silent, mute] = ['busy', 'silent', 'mute'].map(async (id) => {
      const outcome = await pool.call(endpoint, SCOPE, 'act', { id }, calling(times));
      return { ...outcome, afterMs: performance.now() - begun };
    });
    await allRun.promise;
    const at = (ms: number) => vi.advanceTimersByTime(begun + ms - performance.now());
    const report = async (id: string): Promise<void> => {
      heard = Promise.withResolvers();
      await reporting.get(id)?.();
      await heard.promise;
    };
    at(100);
    await report('silent');
    await report('busy');
    at(300);
    await report('busy');
    at(400);
    expect(await mute).toMatchObject({ afterMs: 400, message: 'MCP server "test" did not answer within 0.4 s' });
    at(500);
    expect(await silent).toMatchObject({
      afterMs: 500,
      message: 'MCP server "test" reported no more progress within 0.4 s',
    });
    at(600);
    await report('busy');
    at(900);
    await report('busy');
    at(1_000);
    expect(await busy).toMatchObject({
      afterMs: 1_000,
      status: 'unknown',
      message: 'MCP server "test" did not answer within 1 s',
    });
    vi.useRealTimers();
    expect(server.calls).toHaveLength(3);
  });

  test('is of unknown outcome after its time-out, which progress does not extend without a larger total', async () => {
    const { promise: never } = Promise.withResolvers<string>();
    const { server, pool, endpoint } = await start({
      ...kind,
      tools: [
        {
          name: 'act',
          handler: async (_args, { progress, signal }) => {
            const timer = setInterval(() => void progress(1), 10);
            signal.addEventListener('abort', () => clearInterval(timer));
            return never;
          },
        },
      ],
    });
    let progressed = Promise.withResolvers<void>();
    const onProgress = (): void => progressed.resolve();
    // The time-out is a timer of the SDK; the server and the connection do not use this clock.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const outcome = pool.call(endpoint, SCOPE, 'act', {}, calling({ timeoutMs: 200, onProgress }));
    await progressed.promise;
    vi.advanceTimersByTime(199);
    progressed = Promise.withResolvers();
    await progressed.promise;
    vi.advanceTimersByTime(1);
    expect(await outcome).toMatchObject({
      status: 'unknown',
      message: 'MCP server "test" did not answer within 0.2 s',
    });
    vi.useRealTimers();
    expect(server.calls).toHaveLength(1);
    if (kind.protocol === '2025-11-25') {
      await eventually(() => expect(server.received).toContain('notifications/cancelled'));
    }
  });

  test('has no time-out if it is longer than a timer can be', async () => {
    const { pool, endpoint } = await start(kind);
    const outcome = await pool.call(endpoint, SCOPE, 'act', {}, calling({ timeoutMs: 366 * 86_400_000 }));
    expect(outcome).toMatchObject({ status: 'result' });
  });

  test('is of unknown outcome when it is cancelled in flight, and the tool is notified', async () => {
    const called = Promise.withResolvers<AbortSignal>();
    const { promise: never } = Promise.withResolvers<string>();
    const handler = (_args: object, { signal }: { signal: AbortSignal }): Promise<string> => {
      called.resolve(signal);
      return never;
    };
    const { server, pool, endpoint } = await start({ ...kind, tools: [{ name: 'act', handler }] });
    const cancel = new AbortController();
    const outcome = pool.call(endpoint, SCOPE, 'act', {}, calling({ signal: cancel.signal }));
    const signal = await called.promise;
    cancel.abort();
    expect(await outcome).toMatchObject({
      status: 'unknown',
      message: 'MCP server "test" had not answered when the call was cancelled',
    });
    await eventually(() => expect(signal.aborted).toBe(true));
    expect(server.count('tools/call')).toBe(1);
    if (kind.protocol === '2025-11-25') expect(server.count('notifications/cancelled')).toBe(1);
  });

  test('is not sent when it is cancelled before', async () => {
    const { server, pool, endpoint } = await start(kind);
    const message = 'MCP server "test" had not received the call when it was cancelled';
    const outcome = await pool.call(endpoint, SCOPE, 'act', {}, calling({ signal: AbortSignal.abort() }));
    expect(outcome).toEqual({ status: 'not_sent', message });

    server.faults.set('server/discover', 'stall');
    const cancel = new AbortController();
    const connecting = pool.call(endpoint, SCOPE, 'act', {}, calling({ signal: cancel.signal }));
    await eventually(() => expect(server.received).toContain('server/discover'));
    cancel.abort();
    expect(await connecting).toEqual({ status: 'not_sent', message });
    expect(server.count('tools/call')).toBe(0);
  });

  test('is not sent when the server is down', async () => {
    const { server, pool, endpoint } = await start(kind);
    const refused = { status: 'not_sent', message: 'MCP server "test" refuses connections: is it running?' };
    await pool.tools(endpoint, SCOPE, calling().signal);
    await server.stop();
    await connectionsAreSeenToBeCut();
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toEqual(refused);
    const fresh = new McpPool({ allowPrivateUrls: () => false });
    onTestFinished(() => fresh.close());
    expect(await fresh.call(endpoint, SCOPE, 'act', {}, calling())).toEqual(refused);
  });

  test('is retried when the server was restarted', async () => {
    const { server, pool, endpoint } = await start(kind);
    await pool.call(endpoint, SCOPE, 'act', { n: 1 }, calling());
    await server.restart();
    await connectionsAreSeenToBeCut();
    expect(await pool.call(endpoint, SCOPE, 'act', { n: 2 }, calling())).toMatchObject({ status: 'result' });
    expect(server.calls.map((call) => call.arguments)).toEqual([{ n: 1 }, { n: 2 }]);
  });

  test('carries its operation id in its metadata and as a header, also beside others', async () => {
    const { server, pool, endpoint } = await start(kind);
    const ids = Array.from({ length: 30 }, (_, i) => `turn_1/call_${i}`);
    await Promise.all(ids.map((operationId, n) => pool.call(endpoint, SCOPE, 'act', { n }, calling({ operationId }))));
    for (const { arguments: args, meta, headers } of server.calls) {
      expect(meta['io.everturn/operation-id']).toBe(ids[Number(args.n)]);
      expect(headers['idempotency-key']).toBe(ids[Number(args.n)]);
    }
    expect(server.calls).toHaveLength(30);
    await pool.call(endpoint, SCOPE, 'act', {}, calling({ operationId: 'turn_1/ä\n\ud800' }));
    expect(server.calls.at(-1)?.headers['idempotency-key']).toBe('turn_1/%C3%A4%0A%EF%BF%BD');
  });
});

describe('a session that the server has lost', () => {
  test.each([
    { status: 404, body: 'Session not found' },
    { status: 400, body: '{"error":{"message":"Bad Request: No valid session ID provided"}}' },
  ])('is replaced, and the call is executed once (HTTP $status)', async (unknownSession) => {
    const { server, pool, endpoint } = await start({ protocol: '2025-11-25', unknownSession });
    const first = await pool.tools(endpoint, SCOPE, calling().signal);
    server.forgetSessions();
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'result' });
    expect(server.calls).toHaveLength(1);
    const second = await pool.tools(endpoint, SCOPE, calling().signal);
    expect(second.sessionId).not.toBe(first.sessionId);
  });

  test('that is lost again immediately leaves the call unsent', async () => {
    const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
    server.faults.set('tools/call', { status: 404 });
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toEqual({
      status: 'not_sent',
      message: 'MCP server "test" answered with HTTP 404',
    });
    expect(server.count('tools/call')).toBe(2);
  });

  test('does not disturb the calls in flight in it', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const { server, pool, endpoint } = await start({
      protocol: '2025-11-25',
      tools: [{ name: 'slow', handler: () => promise }, { name: 'act' }],
    });
    const slow = pool.call(endpoint, SCOPE, 'slow', {}, calling());
    await eventually(() => expect(server.calls).toHaveLength(1));
    server.faults.set('tools/call', { status: 404 });
    const found = Promise.withResolvers<void>();
    server.faults.set('initialize', { until: found.promise });
    const outcome = pool.call(endpoint, SCOPE, 'act', {}, calling());
    await eventually(() => expect(server.count('initialize')).toBe(2));
    server.faults.clear();
    found.resolve();
    expect(await outcome).toMatchObject({ status: 'result' });
    resolve('late');
    expect(await slow).toMatchObject({ status: 'result', content: [{ text: 'late' }] });
  });
});

describe('an event stream that can be resumed', () => {
  const resumable = { protocol: '2025-11-25', resumable: true } as const;

  test('is resumed when the connection breaks, and the response arrives', async () => {
    const { server, pool, endpoint } = await start(resumable);
    server.faults.set('tools/call', 'swallow');
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'result' });
    expect(server.count('tools/call')).toBe(1);
  });

  test('is resumed when the server closes it', async () => {
    const { server, pool, endpoint } = await start({
      ...resumable,
      tools: [
        {
          name: 'act',
          handler: async (_args, { hangUp }) => {
            const gets = server.count('GET');
            hangUp();
            await eventually(() => expect(server.count('GET')).toBeGreaterThan(gets));
            return 'later';
          },
        },
      ],
    });
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ content: [{ text: 'later' }] });
    expect(server.calls).toHaveLength(1);
  });

  test('is not resumed after the call was cancelled', async () => {
    const called = Promise.withResolvers<() => void>();
    const { promise: never } = Promise.withResolvers<string>();
    const { server, pool, endpoint } = await start({
      ...resumable,
      tools: [
        {
          name: 'act',
          handler: (_args, { hangUp }) => {
            called.resolve(hangUp);
            return never;
          },
        },
      ],
    });
    await pool.tools(endpoint, SCOPE, calling().signal);
    await eventually(() => expect(server.count('GET')).toBe(1));
    const cancel = new AbortController();
    const outcome = pool.call(endpoint, SCOPE, 'act', {}, calling({ signal: cancel.signal }));
    const hangUp = await called.promise;
    cancel.abort();
    expect(await outcome).toMatchObject({ status: 'unknown' });
    hangUp();
    await eventually(() => expect(server.openRequests).toBe(1));
    for (let calls = 0; calls < 3; calls++) await pool.call(endpoint, SCOPE, 'other', {}, calling());
    expect(server.count('GET')).toBe(1);
  });

  test('leaves an unknown outcome when it cannot be resumed', async () => {
    const { server, pool, endpoint } = await start({
      ...resumable,
      tools: [
        {
          name: 'act',
          handler: (_args, { hangUp }) => {
            server.faults.set('GET', { status: 500 });
            hangUp();
            return 'later';
          },
        },
      ],
    });
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'unknown' });
    expect(server.calls).toHaveLength(1);
  });
});

test('a tool that requests input differs from one that continues as a task, which may have taken effect', async () => {
  const { server, pool, endpoint } = await start({});
  await pool.tools(endpoint, SCOPE, calling().signal);
  const results = [
    { resultType: 'input_required', requestState: 's' },
    { resultType: 'task', taskId: '1' },
  ];
  const outcomes = [];
  for (const result of results) {
    server.faults.set('tools/call', { result });
    outcomes.push(await pool.call(endpoint, SCOPE, 'act', {}, calling()));
  }
  expect(outcomes.map(({ status }) => status)).toEqual(['input_required', 'result']);
});

test('a gateway that gives up on the server behind it leaves an unknown outcome', async () => {
  const errors = [
    Object.assign(new Error('MCP error -32001: Request timed out'), { code: -32001 }),
    Object.assign(new Error('MCP error -32000: Connection closed'), { code: -32000 }),
  ];
  const { pool, endpoint } = await start({
    tools: [{ name: 'act', handler: ({ n }) => Promise.reject(errors[Number(n)] ?? new Error()) }],
  });
  for (const n of errors.keys()) {
    expect(await pool.call(endpoint, SCOPE, 'act', { n }, calling())).toMatchObject({ status: 'unknown' });
  }
});

test('a tool that takes arguments as headers gets them once its description was read', async () => {
  const region = { type: 'string', 'x-mcp-header': 'Region' };
  const { server, pool, endpoint } = await start({
    tools: [
      {
        name: 'act',
        inputSchema: { type: 'object', properties: { region } },
        handler: () => {
          if (server.calls.at(-1)?.headers['mcp-param-region'] === 'eu') return 'ok';
          throw Object.assign(new Error('Mcp-Param-Region is missing'), { code: -32020 });
        },
      },
    ],
  });
  expect(await pool.call(endpoint, SCOPE, 'act', { region: 'eu' }, calling())).toMatchObject({ status: 'result' });
  expect([server.count('tools/call'), server.count('tools/list')]).toEqual([2, 1]);
  expect(await pool.call(endpoint, SCOPE, 'act', { region: 'eu' }, calling())).toMatchObject({ status: 'result' });
  expect([server.count('tools/call'), server.count('tools/list')]).toEqual([3, 1]);
  expect(await pool.call(endpoint, SCOPE, 'act', { region: 'us' }, calling())).toMatchObject({ status: 'rejected' });
  expect(server.count('tools/call')).toBe(4);

  const other = new McpPool({ allowPrivateUrls: () => false });
  onTestFinished(() => other.close());
  await other.tools(endpoint, SCOPE, calling().signal);
  const before = server.count('tools/call');
  expect(await other.call(endpoint, SCOPE, 'act', { region: 'eu' }, calling())).toMatchObject({ status: 'result' });
  expect(server.count('tools/call')).toBe(before + 1);
});

test('results that do not match the output schema of the tool are accepted', async () => {
  const { pool, endpoint } = await start({
    tools: [
      {
        name: 'act',
        outputSchema: { type: 'object', required: ['a'] },
        handler: () => ({ content: [], structuredContent: { b: 1 } }),
      },
    ],
  });
  await pool.tools(endpoint, SCOPE, calling().signal);
  expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ structuredContent: { b: 1 } });
});

test('a call is never sent to an unknown host, a server without TLS or a private address', async () => {
  const { server, pool, endpoint } = await start({});
  const at = (url: string) => pool.call({ ...endpoint, url }, SCOPE, 'act', {}, calling());
  expect(await at('http://nowhere.invalid/')).toMatchObject({
    status: 'not_sent',
    message: expect.stringContaining('has a host name that does not resolve'),
  });
  expect(await at(server.url.replace('http:', 'https:'))).toMatchObject({ status: 'not_sent' });
  expect(await pool.call({ ...endpoint, trusted: false }, SCOPE, 'act', {}, calling())).toEqual({
    status: 'not_sent',
    message: expect.stringContaining('127.0.0.1 is at a private address: set EVERTURN_ALLOW_PRIVATE_URLS=true'),
  });
  expect(await at('http://user:secret@127.0.0.1/')).toEqual({
    status: 'not_sent',
    message: expect.not.stringContaining('secret'),
  });
});

test('closing the pool ends the calls in flight', async () => {
  const { promise: never } = Promise.withResolvers<string>();
  const { server, pool, endpoint } = await start({ tools: [{ name: 'act', handler: () => never }] });
  const outcome = pool.call(endpoint, SCOPE, 'act', {}, calling());
  await eventually(() => expect(server.calls).toHaveLength(1));
  await pool.close();
  expect(await outcome).toMatchObject({ status: 'unknown' });
  expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'not_sent' });
});

test('a truncated response leaves an unknown outcome', async () => {
  const { server, pool, endpoint } = await start({});
  await pool.tools(endpoint, SCOPE, calling().signal);
  const port = Number(new URL(server.url).port);
  await server.stop();
  let posts = 0;
  const broken = createServer((request, response) => {
    posts += 1;
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '1000' });
      response.write('{"jsonrpc":"2.0"', () => response.destroy());
    });
  });
  onTestFinished(() => void broken.close());
  await new Promise<void>((resolve) => broken.listen(port, '127.0.0.1', resolve));
  await connectionsAreSeenToBeCut();
  expect(await pool.call(endpoint, SCOPE, 'act', {}, calling())).toMatchObject({ status: 'unknown' });
  expect(posts).toBe(1);
});
