import { inputRequired } from '@modelcontextprotocol/server';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { KINDS, stdioEndpoint } from '../../test/support/mcp-kinds.ts';
import { SCOPE, toolScope } from '../../test/support/tool-scope.ts';
import { TestMcpServer, type TestMcpServerOptions, type TestTool } from '../../test/support/mcp-server.ts';
import { listedSchemaOf } from './read-tools.ts';
import { McpPool, McpUnavailableError, type McpPoolOptions } from './pool.ts';
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

test('a server of 2026-07-28 has no session, a server of 2025-11-25 has one', async () => {
  const modern = await start();
  const legacy = await start({ protocol: '2025-11-25' });
  const shown = { id: 'test', name: 'test', transport: 'streamable-http', tools: [{ name: 'act' }] };
  expect(await modern.pool.tools(modern.endpoint, SCOPE, unaborted)).toMatchObject({ ...shown, sessionId: null });
  expect(await legacy.pool.tools(legacy.endpoint, SCOPE, unaborted)).toMatchObject({
    ...shown,
    sessionId: expect.stringMatching(/^[0-9a-f-]{36}$/),
  });
  expect(modern.server.received).not.toContain('initialize');
});

test('callers of a session with the same URL and headers share a connection, under any name of the server', async () => {
  const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
  const secret = { ...endpoint, headers: { authorization: 'Bearer secret' } };
  const endpoints = [endpoint, { ...endpoint, id: 'other', name: 'other' }, secret, { ...secret }];
  const answers = await Promise.all(endpoints.map((one) => pool.tools(one, SCOPE, unaborted)));
  expect(answers.map(({ name }) => name)).toEqual(['test', 'other', 'test', 'test']);
  expect(server.count('initialize')).toBe(2);
  await pool.call(secret, SCOPE, 'act', {}, calling);
  expect(server.calls[0]?.headers.authorization).toBe('Bearer secret');
});

test('the texts of a server do not repeat the credentials of a run, which have connections of their own', async () => {
  const { server, pool, endpoint } = await start(
    { tools: [{ name: 'act', handler: (_, { headers }) => `${headers['x-api-key']}, ${headers['x-team']}` }] },
    { allowPrivateUrls: () => true },
  );
  const ofRun = (credentialsOf: string) => {
    return {
      ...endpoint,
      trusted: false,
      headers: { 'x-api-key': 'secret-of-ann', 'x-team': 'team-of-ann' },
      credentialsOf,
    };
  };
  for (const session of ['ses_1', 'ses_1', 'ses_2']) await pool.tools(ofRun(session), SCOPE, unaborted);
  expect(server.count('server/discover')).toBe(2);
  const call = () => pool.call(ofRun('ses_1'), SCOPE, 'act', {}, calling);
  expect(await call()).toMatchObject({ content: [{ text: '[hidden], team-of-ann' }] });
  // The reason is cut in the middle of the credential.
  const body = JSON.stringify({ error: { message: `${'x'.repeat(270)} secret-of-ann` } });
  server.faults.set('tools/call', { status: 400, body });
  const failed = await call();
  expect(failed).toMatchObject({ status: 'rejected', message: expect.stringContaining('x [hid') });
  server.faults.set('server/discover', { status: 400, body });
  const error: unknown = await pool.tools(ofRun('ses_3'), SCOPE, unaborted).catch((reason: unknown) => reason);
  expect(JSON.stringify([failed, (error as Error).message])).not.toContain('secret');
});

test('the texts of a registered server do not repeat the headers of the operator', async () => {
  const { server, pool, endpoint } = await start({
    tools: [
      {
        name: 'act',
        handler: (_, { headers }) => ({
          content: [{ type: 'text', text: `${headers['x-api-key']}, ${headers['x-team']}, ${headers['x-short']}` }],
          structuredContent: { [headers['x-api-key'] ?? '']: [{ key: `of ${headers['x-api-key']}` }] },
        }),
      },
    ],
  });
  const operated = {
    ...endpoint,
    headers: { 'x-api-key': 'key-of-operator', 'x-team': 'team-of-ann', 'x-short': 'abc' },
  };
  const call = () => pool.call(operated, SCOPE, 'act', {}, calling);
  expect(await call()).toMatchObject({
    content: [{ text: '[hidden], [hidden], abc' }],
    structuredContent: { '[hidden]': [{ key: 'of [hidden]' }] },
  });
  server.faults.set('tools/call', { status: 400, body: '{"error":{"message":"not you, key-of-operator"}}' });
  expect(await call()).toMatchObject({ message: expect.stringContaining('not you, [hidden]') as string });
});

test('the descriptions of a server and of its tools have no credentials either', async () => {
  const said = 'use key-of-operator';
  const { pool, endpoint } = await start({
    instructions: said,
    tools: [
      {
        name: 'act',
        description: said,
        inputSchema: { type: 'object', properties: { a: { type: 'string', default: said } }, not: { const: said } },
      },
      { name: 'key-of-operator', inputSchema: { type: 'object', not: {} } },
    ],
  });
  const listed = await pool.tools({ ...endpoint, headers: { 'x-api-key': 'key-of-operator' } }, SCOPE, unaborted);
  expect(listed.instructions).toBe('use [hidden]');
  expect(listed.toolWarnings).toHaveLength(2);
  expect(listed.tools).toHaveLength(2);
  expect(JSON.stringify(listed)).not.toContain('key-of-operator');
  // The schema that the server lists is kept beside the one for models.
  expect(listedSchemaOf(listed.tools[0]!)).toMatchObject({ listedSchema: { not: { const: 'use [hidden]' } } });
});

test('the texts of a server do not repeat the tokens of a user, also not one that was refreshed', async () => {
  const accepted = new Set(['Bearer first-token-of-ann']);
  const { server, pool, endpoint } = await start(
    {
      tools: [{ name: 'act', handler: (_, { headers }) => `you sent ${headers['authorization']}` }],
      guard: ({ headers }) =>
        Promise.resolve(accepted.has(headers['authorization'] ?? '') ? undefined : { status: 401 }),
    },
    {
      grants: {
        find: () => Promise.resolve('grant_1'),
        account: () => Promise.resolve(undefined),
        tokensOf: () => ({
          id: 'grant_1',
          scopes: () => Promise.resolve([]),
          current: () => Promise.resolve('first-token-of-ann'),
          refreshed: () => Promise.resolve('second-token-of-ann'),
          drop: () => Promise.resolve(),
        }),
      },
    },
  );
  const call = () => pool.call(endpoint, SCOPE, 'act', {}, calling);
  const hidden = { content: [{ text: 'you sent [hidden]' }] };
  expect(await call()).toMatchObject(hidden);
  accepted.clear();
  accepted.add('Bearer second-token-of-ann');
  expect(await call()).toMatchObject(hidden);
  server.faults.set('tools/call', { status: 400, body: '{"error":{"message":"not second-token-of-ann"}}' });
  expect(await call()).toMatchObject({ message: expect.stringContaining('not [hidden]') as string });
});

test.each(['2026-07-28', '2025-11-25'] as const)(
  'what a server of %s asks does not repeat the credentials of a run',
  async (protocol) => {
    const requestedSchema = { type: 'object' as const, properties: {} };
    const handler: TestTool['handler'] = async (_, { headers, elicit, inputResponses }) => {
      const question = { message: `Are you ${headers['x-api-key']}?`, requestedSchema };
      if (protocol === '2025-11-25') return JSON.stringify(await elicit(question));
      return inputResponses ? 'done' : inputRequired({ inputRequests: { who: inputRequired.elicit(question) } });
    };
    const { pool, endpoint } = await start({ protocol, tools: [{ name: 'ask', handler }] });
    const ofRun = { ...endpoint, headers: { 'x-api-key': 'secret-of-ann' }, credentialsOf: 'ses_1' };
    const onQuestion = vi.fn(() => Promise.resolve({ action: 'cancel' as const }));
    const answer = await pool.call(ofRun, SCOPE, 'ask', {}, { ...calling, onQuestion });
    const asked = 'request' in answer ? answer.request.questions : onQuestion.mock.calls;
    expect(JSON.stringify(asked)).toContain('Are you [hidden]?');
  },
);

test('an inline server may not use the connection of a registered one at a private address', async () => {
  const { pool, endpoint } = await start();
  await pool.tools(endpoint, SCOPE, unaborted);
  const inline = pool.tools({ ...endpoint, trusted: false }, SCOPE, unaborted);
  await expect(inline).rejects.toThrow('EVERTURN_ALLOW_PRIVATE_URLS');
  const open = await start({}, { allowPrivateUrls: () => true });
  await expect(open.pool.tools({ ...open.endpoint, trusted: false }, SCOPE, unaborted)).resolves.toBeDefined();
});

describe('a server that is down', () => {
  test('is an error that names it and the reason', async () => {
    const { server, pool, endpoint } = await start();
    await server.stop();
    const error: unknown = await pool.tools(endpoint, SCOPE, unaborted).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(McpUnavailableError);
    expect(error).toMatchObject({
      message: 'MCP server "test" refuses connections: is it running?',
      reason: 'refuses connections: is it running?',
    });
  });

  test.each([
    [
      { status: 401, body: '{"error":{"message":"Who are you?"}}' },
      /HTTP 401; .* authorize the client: Who are you\?$/,
    ],
    [{ status: 500 }, /HTTP 500$/],
    [{ status: 200, contentType: 'text/html', body: '<h1>' }, /content type/],
  ])('says what it answered: %j', async (fault, message) => {
    const { server, pool, endpoint } = await start();
    server.faults.set('server/discover', fault);
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow(message);
  });

  test('is not retried for a while', async () => {
    let now = 0;
    const { server, pool, endpoint } = await start({}, { now: () => now });
    server.faults.set('server/discover', { status: 500 });
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow('HTTP 500');
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow('HTTP 500');
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling)).toMatchObject({ status: 'not_sent' });
    expect(server.count('server/discover')).toBe(1);
    server.faults.clear();
    now += 1_000;
    expect(await pool.call(endpoint, SCOPE, 'act', {}, calling)).toMatchObject({ status: 'result' });
  });

  test.each(['server/discover', 'initialize', 'notifications/initialized'])(
    'has a limited time to answer %s',
    async (method) => {
      const { server, pool, endpoint } = await start({ protocol: '2025-11-25' }, { responseTimeoutMs: 100 });
      server.faults.set(method, 'stall');
      await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow(
        /^MCP server "test" (did not answer within 0.1 s|failed: no MCP handshake within 0.1 s)$/,
      );
    },
  );

  test('is still awaited by callers that were not aborted', async () => {
    const { server, pool, endpoint } = await start();
    server.faults.set('server/discover', 'stall');
    const abort = new AbortController();
    const gone = pool.tools(endpoint, SCOPE, abort.signal);
    const waiting = pool.tools(endpoint, SCOPE, unaborted);
    await eventually(() => expect(server.received).toEqual(['server/discover']));
    const reason = new Error('enough');
    abort.abort(reason);
    await expect(gone).rejects.toBe(reason);
    await server.stop();
    await expect(waiting).rejects.toThrow('MCP server "test" closed the connection without an answer');
  });
});

test('an idle connection is closed, and another one is opened on the next use', async () => {
  const { server, pool, endpoint } = await start({ protocol: '2025-11-25' }, { idleMs: 50 });
  await pool.tools(endpoint, SCOPE, unaborted);
  await eventually(() => expect(server.received).toContain('DELETE'));
  expect(await pool.call(endpoint, SCOPE, 'act', {}, calling)).toMatchObject({ status: 'result' });
  expect(server.count('initialize')).toBe(2);
});

test('a connection with a call under way is in use', async () => {
  const { promise, resolve } = Promise.withResolvers<string>();
  const { server, pool, endpoint } = await start(
    { protocol: '2025-11-25', tools: [{ name: 'act', handler: () => promise }] },
    { idleMs: 20 },
  );
  const outcome = pool.call(endpoint, SCOPE, 'act', {}, calling);
  const other = await start({ protocol: '2025-11-25' }, { idleMs: 20 });
  await other.pool.tools(other.endpoint, SCOPE, unaborted);
  await eventually(() => expect(other.server.received).toContain('DELETE'));
  expect(server.received).not.toContain('DELETE');
  resolve('done');
  expect(await outcome).toMatchObject({ status: 'result' });
  await eventually(() => expect(server.received).toContain('DELETE'));
});

test('a connection is not closed for being idle while a call of its sessions waits for a person', async () => {
  let isPending: boolean | undefined = true;
  const asked: string[][] = [];
  const { server, pool, endpoint } = await start(
    { protocol: '2025-11-25' },
    {
      idleMs: 10,
      watchSession: () => ({ [Symbol.dispose]: () => {} }),
      areAwaited: (sessions) => {
        asked.push(sessions);
        return isPending === undefined ? Promise.reject(new Error('unavailable')) : Promise.resolve(isPending);
      },
    },
  );
  const shared = { ...endpoint, isolation: 'shared' as const };
  for (const id of ['ses_1', 'ses_2']) await pool.tools(shared, toolScope(id), unaborted);
  await eventually(() => expect(asked.length).toBeGreaterThan(2));
  expect(asked.at(-1)).toEqual(['ses_1', 'ses_2']);
  isPending = undefined;
  const before = asked.length;
  await eventually(() => expect(asked.length).toBeGreaterThan(before + 1));
  expect(server.received).not.toContain('DELETE');
  isPending = false;
  await eventually(() => expect(server.received).toContain('DELETE'));
});

test('a server has the idle time of its registration', async () => {
  const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
  await pool.tools({ ...endpoint, idleMs: 20 }, SCOPE, unaborted);
  await eventually(() => expect(server.received).toContain('DELETE'));
});

test('where tools are only listed, neither a registration nor a person who is waited for keeps an idle connection', async () => {
  const watchSession = () => ({ [Symbol.dispose]: () => {} });
  const areAwaited = () => Promise.resolve(true);
  const { server, pool, endpoint } = await start(
    { protocol: '2025-11-25' },
    { idleMs: 20, onlyLists: true, watchSession, areAwaited },
  );
  await pool.tools({ ...endpoint, idleMs: 86_400_000 }, SCOPE, unaborted);
  await eventually(() => expect(server.received).toContain('DELETE'));
});

describe('the version of the protocol that a registration pins', () => {
  test.each(['streamable HTTP, 2026-07-28', 'stdio, 2026-07-28'])(
    'is the only one, for a server over %s',
    async (kind) => {
      const { endpoint, stop } = await KINDS[kind]!();
      onTestFinished(stop);
      const pool = new McpPool({ allowPrivateUrls: () => false });
      onTestFinished(() => pool.close());
      const modern = await pool.tools({ ...endpoint, protocol: '2026-07-28' }, SCOPE, unaborted);
      expect(modern.protocol).toBe('2026-07-28');
      await expect(pool.tools({ ...endpoint, id: 'x', protocol: '2025-11-25' }, SCOPE, unaborted)).rejects.toThrow(
        /answered with an error|protocol version/,
      );
    },
  );

  test('is older than what the server could speak', async () => {
    const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
    const older = await pool.tools({ ...endpoint, protocol: '2025-03-26' }, SCOPE, unaborted);
    expect(older.protocol).toBe('2025-03-26');
    // No other version is tried first.
    expect(server.received).not.toContain('server/discover');
    const modern = pool.tools({ ...endpoint, protocol: '2026-07-28' }, SCOPE, unaborted);
    await expect(modern).rejects.toThrow('pinned protocol version 2026-07-28');
  });
});

test('closing ends sessions and connections, including those that are being opened', async () => {
  const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
  await pool.tools(endpoint, SCOPE, unaborted);
  const stalled = await start();
  stalled.server.faults.set('server/discover', 'stall');
  const opening = pool.tools(stalled.endpoint, SCOPE, unaborted).catch((error: unknown) => error);
  await eventually(() => expect(stalled.server.received).toContain('server/discover'));
  await pool.close();
  expect(server.received).toContain('DELETE');
  expect(await opening).toBeInstanceOf(McpUnavailableError);
  await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow('shutting down');
});

describe('a connection with state at the server', () => {
  /** Two sessions of one subject, and one of another. */
  const SCOPES = [toolScope('ses_1', 'ann'), toolScope('ses_2', 'ann'), toolScope('ses_3', 'bob')];

  test.each([
    ['session', 3, true],
    ['subject', 2, false],
    ['shared', 1, false],
  ] as const)(
    'isolated by %s has so many callers, and its id is only shown to the one session that has it',
    async (isolation, connections, isShown) => {
      const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
      const isolated = { ...endpoint, isolation };
      const answers = await Promise.all(SCOPES.map((scope) => pool.tools(isolated, scope, unaborted)));
      for (const scope of SCOPES) await pool.call(isolated, scope, 'act', {}, calling);
      expect(server.count('initialize')).toBe(connections);
      const used = server.calls.map(({ headers }) => headers['mcp-session-id']);
      expect(new Set(used).size).toBe(connections);
      expect(answers.map(({ sessionId }) => sessionId)).toEqual(isShown ? used : [null, null, null]);
    },
  );

  test('is opened once for all calls of its scope', async () => {
    const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
    const twice = [...SCOPES, ...SCOPES];
    await Promise.all(twice.map((scope) => pool.call(endpoint, scope, 'act', {}, calling)));
    expect(server.count('initialize')).toBe(3);
  });

  test('to a program belongs to a subject, so that there is not one process per session', async () => {
    const { pool } = await start();
    const pids = SCOPES.map(async (scope) => {
      const outcome = await pool.call(stdioEndpoint('2025-11-25'), scope, 'inspect', {}, calling);
      return /"pid":(\d+)/.exec(JSON.stringify(outcome).replaceAll('\\', ''))?.[1];
    });
    const [one, two, other] = await Promise.all(pids);
    expect(one).toMatch(/^\d+$/);
    expect(two).toBe(one);
    expect(other).not.toBe(one);
  });
});

describe('a connection without state', () => {
  test.each(['streamable HTTP, 2026-07-28', 'streamable HTTP without sessions, 2025-11-25'])(
    'serves all sessions: %s',
    async (kind) => {
      const { endpoint, stop } = await KINDS[kind]!();
      onTestFinished(stop);
      const pool = new McpPool({ allowPrivateUrls: () => false, maxConnections: 1 });
      onTestFinished(() => pool.close());
      const scopes = Array.from({ length: 10 }, (_, i) => toolScope(`ses_${i}`, `subject-${i}`));
      // With a maximum of one, a second connection would close the first, or fail.
      const outcomes = await Promise.all(
        scopes.map((scope) => pool.call({ ...endpoint }, scope, 'echo', { text: scope.sessionId }, calling)),
      );
      expect(outcomes).toMatchObject(scopes.map(({ sessionId: text }) => ({ structuredContent: { text } })));
    },
  );

  test('belongs to one session once the server has begun to keep sessions', async () => {
    let now = 0;
    const { server, pool, endpoint } = await start({}, { now: () => now });
    const [ann, bob] = [toolScope('ses_1', 'ann'), toolScope('ses_2', 'bob')];
    await Promise.all([ann, bob].map((scope) => pool.tools(endpoint, scope, unaborted)));
    expect(server.count('server/discover')).toBe(1);
    await server.restart({ protocol: '2025-11-25' });
    // A call may have been executed over the broken connection, so it is not repeated; a listing is.
    now += 60_000;
    await Promise.all([ann, bob].map((scope) => pool.tools(endpoint, scope, unaborted)));
    for (const scope of [ann, bob, ann, bob]) {
      expect(await pool.call(endpoint, scope, 'act', {}, calling)).toMatchObject({ status: 'result' });
    }
    const used = server.calls.map(({ headers }) => headers['mcp-session-id']);
    expect(new Set(used).size).toBe(2);
    expect(used.slice(2)).toEqual(used.slice(0, 2));
  });
});

describe('when the maximum number of connections is open', () => {
  const [one, two, three] = [toolScope('ses_1'), toolScope('ses_2'), toolScope('ses_3')];

  test('the connection that has been idle longest is closed, and its session at the server ends', async () => {
    const { server, pool, endpoint } = await start({ protocol: '2025-11-25' }, { maxConnections: 2 });
    for (const scope of [one, two, one, three, one]) await pool.call(endpoint, scope, 'act', {}, calling);
    expect(server.count('initialize')).toBe(3);
    expect(server.count('DELETE')).toBe(1);
    const used = server.calls.map(({ headers }) => headers['mcp-session-id']);
    expect(new Set([used[0], used[2], used[4]]).size).toBe(1);
  });

  test('and all are in use, a call is not sent, and the outcome says so', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const tools = [{ name: 'act', handler: () => promise }];
    const { server, pool, endpoint } = await start({ protocol: '2025-11-25', tools }, { maxConnections: 1 });
    const running = pool.call(endpoint, one, 'act', {}, calling);
    await eventually(() => expect(server.calls).toHaveLength(1));
    expect(await pool.call(endpoint, two, 'act', {}, calling)).toEqual({
      status: 'not_sent',
      message: `MCP server "test" has no free connection: all 1 connections are in use`,
    });
    resolve('done');
    expect(await running).toMatchObject({ status: 'result' });
  });
});

test('calls name the connection for which the server keeps state, and are not sent on one that has replaced theirs', async () => {
  const { server, pool, endpoint } = await start({ protocol: '2025-11-25' });
  const connectionOf = async (one = endpoint) => {
    const answer = await pool.call(one, SCOPE, 'act', {}, calling);
    return 'connection' in answer ? answer.connection : undefined;
  };
  const first = await connectionOf();
  expect(first).toEqual({ serverId: endpoint.id, id: expect.stringMatching(/^[0-9a-f-]{36}$/) });
  expect(await connectionOf()).toEqual(first);
  const onFirst = { ...calling, reliesOn: new Set([first?.id ?? '']) };
  expect(await pool.call(endpoint, SCOPE, 'act', {}, onFirst)).toMatchObject({ status: 'result' });
  const onAnother = { ...calling, reliesOn: new Set([first?.id ?? '', 'gone']) };
  expect(await pool.call(endpoint, SCOPE, 'act', {}, onAnother)).toEqual({ status: 'replaced' });
  expect(server.calls.length).toBe(3);
  const careless = { ...endpoint, stateful: false };
  expect(await connectionOf(careless)).toBeUndefined();
  expect(await pool.call(careless, SCOPE, 'act', {}, onAnother)).toMatchObject({ status: 'result' });
  const { pool: other, endpoint: modern } = await start();
  expect(await other.call(modern, SCOPE, 'act', {}, onAnother)).not.toHaveProperty('connection');
});
