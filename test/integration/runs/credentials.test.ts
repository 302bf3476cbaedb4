import path from 'node:path';
import { inputRequired } from '@modelcontextprotocol/server';
import { afterAll, beforeAll, beforeEach, expect, inject, test } from 'vitest';
import { createLogger } from '../../../src/telemetry/logger.ts';
import { runIdsOf } from '../../../src/features/run-support/runs.ts';
import { eventually } from '../../support/eventually.ts';
import { TestMcpServer, type RunningCall } from '../../support/mcp-server.ts';
import { find, readFolder, readTables, readTemporal } from '../../support/raw-stores.ts';
import { inShort, RunAgent, textOfRun } from '../../support/runs.ts';
import { held, say, use } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** The secrets that runs give to their MCP servers: the acceptance case 56 of the run API, and what it stands for. */

const TOKEN = 'token-of-the-run-56789';

let server: TestServer;
/** Another server, at another origin. */
let other: TestMcpServer;
const logged: string[] = [];
/** The requests to the MCP servers of the test: the values of the headers that runs have set. */
let asked: { server: 'lab' | 'other'; authorization?: string | undefined; tenant?: unknown }[] = [];
/** Where the server of the test sends its clients to. */
let movedTo: string | undefined;

const ACCEPTED = new Set([TOKEN, 'token-of-ann-12345', 'token-of-bob-12345'].map((token) => `Bearer ${token}`));

beforeAll(async () => {
  const guardOf =
    (name: 'lab' | 'other') =>
    async ({ headers, url }: { headers: Record<string, unknown>; url?: string | undefined }) => {
      const authorization = headers['authorization']?.toString();
      asked.push({ server: name, authorization, tenant: headers['x-tenant'] });
      if (name === 'lab' && movedTo) return { status: 307, headers: { location: movedTo } };
      if (url?.endsWith('/open') || ACCEPTED.has(authorization ?? '')) return undefined;
      return { status: 401, body: `{"error":{"message":"I do not accept ${authorization}"}}` };
    };
  const tools = [
    {
      name: 'whoami',
      annotations: { readOnlyHint: true },
      handler: (_: unknown, { headers }: { headers: Record<string, string> }) => `you sent ${headers['authorization']}`,
    },
    { name: 'act', handler: () => 'done' },
    {
      name: 'ask',
      handler: (_: unknown, { headers, inputResponses }: RunningCall) => {
        if (inputResponses) return 'no answer';
        const message = `Is it you who sent ${headers['authorization']}?`;
        const requestedSchema = { type: 'object' as const, properties: { ok: { type: 'boolean' as const } } };
        const inputRequests = { who: inputRequired.elicit({ message, requestedSchema }) };
        return inputRequired({ inputRequests, requestState: `of ${headers['authorization']}` });
      },
    },
  ];
  other = await TestMcpServer.start({ tools, guard: guardOf('other') });
  server = await startTestServer({
    mcp: { tools, guard: guardOf('lab') },
    servers: { operated: { url: other.url, headers: { authorization: 'Bearer of-the-operator' } } },
    log: createLogger({ logLevel: 'trace' }, { write: (line: string) => void logged.push(line) }),
    // Text that is not encrypted can be searched.
    env: { EVERTURN_ENCRYPTION_KEYS: '' },
  });
});
afterAll(async () => {
  await server.stop();
  await other.stop();
});
beforeEach(() => {
  asked = [];
  movedTo = undefined;
  server.mcp.calls.length = 0;
});

const lab = (more: object = {}): object => ({ type: 'mcp', name: 'lab', url: server.mcp.url, ...more });
const agent = (scripts: ConstructorParameters<typeof RunAgent>[1], toolkits: object[], more: object = {}): RunAgent =>
  new RunAgent(server, scripts, { toolkits, ...more });

async function tablesWith(text: string): Promise<string[]> {
  return find(text, await readTables(server.database.rows));
}

test('56: a server gets the credentials and its part of the context, which are in no response, log, file or history', async () => {
  const { script, reached, release } = held(
    (call) => call.text('So'),
    (call) => call.text(' it is.').finish(),
  );
  const toolkit = lab({
    authorization: '{{context.token}}',
    headers: { 'X-Tenant': 'tenant {{context.tenant.id}}' },
    context_keys: ['user', 'nothing'],
  });
  const calls = ['whoami', 'act', 'ask'].map((name) => use({ name }));
  const one = agent([...calls, script], [toolkit]);
  const context = { token: TOKEN, user: { name: 'ann' }, tenant: { id: 7 }, more: 'more-of-the-context' };
  const stream = one.stream('Who am I?', { context });
  const id = (await stream.headers).get('x-run-id') ?? '';
  await reached;
  expect(await tablesWith(TOKEN)).toEqual(['run_secrets']);
  release();
  expect(await stream.end()).toMatchObject({ event: 'response', status: 'completed' });
  expect(new Set(asked.map((request) => JSON.stringify(request)))).toEqual(
    new Set([JSON.stringify({ server: 'lab', authorization: `Bearer ${TOKEN}`, tenant: 'tenant 7' })]),
  );
  expect(server.mcp.calls.map(({ tool, meta }) => [tool, meta['io.everturn/context']])).toEqual(
    // The last one continues with the answer that there is none.
    ['whoami', 'act', 'ask', 'ask'].map((tool) => [tool, { user: { name: 'ann' } }]),
  );
  const { sessionId, turnId } = runIdsOf(id);
  await eventually(async () => expect(await tablesWith(TOKEN)).toEqual([]));
  const temporal = { address: inject('temporalAddress'), namespace: inject('temporalNamespace') };
  const query = `WorkflowId = 'session/${sessionId}' OR WorkflowId = 'turn/${turnId}'`;
  const histories = await readTemporal(temporal, query);
  expect(find('whoami', histories).length).toBeGreaterThan(0);
  const seen = new Map([
    ['stream', Buffer.from(JSON.stringify(stream.events))],
    ['run', Buffer.from(JSON.stringify(await server.api.get(`/v1/runs/${id}`)))],
    ['log of the run', Buffer.from(JSON.stringify(await server.api.get(`/v1/runs/${id}/events`)))],
    ['requests to the model', Buffer.from(JSON.stringify(one.requests))],
    ['log of the server', Buffer.from(logged.join(''))],
    ...(await readFolder(path.join(server.dataDir, 'blobs'))),
    ...(await readTables(server.database.rows)),
    ...histories,
  ]);
  for (const secret of [TOKEN, 'tenant 7', 'more-of-the-context']) expect(find(secret, seen), secret).toEqual([]);
  expect(find('you sent [hidden]', seen)).toEqual(expect.arrayContaining(['stream', 'run', 'log of the run']));
});

test('a server that an agent has twice gets the credentials of the toolkit whose tool is called', async () => {
  const toolkits = ['ann', 'bob'].map((name) => ({ ...lab({ authorization: `Bearer token-of-${name}-12345` }), name }));
  const one = agent([use({ name: 'bob__act' }, { name: 'ann__act' }), say('ok')], toolkits, {
    tool_execution: 'sequential',
  });
  const run = await one.run('Go');
  expect(
    inShort(run.output)
      .slice(1, 3)
      .every((item) => item.endsWith('completed')),
    JSON.stringify(run),
  ).toBe(true);
  expect(server.mcp.calls.map(({ headers }) => headers['authorization'])).toEqual([
    'Bearer token-of-bob-12345',
    'Bearer token-of-ann-12345',
  ]);
});

test('nothing that a server has answered to a run with credentials is used for another run', async () => {
  const mine = [lab({ authorization: TOKEN })];
  const { script, reached, release } = held(
    () => undefined,
    (call) => call.text('ok').finish(),
  );
  const first = agent([script], mine).run('Go');
  await reached;
  const before = server.mcp.count('server/discover');
  expect(await agent([say('ok')], mine).run('Go')).toMatchObject({ status: 'completed' });
  expect(server.mcp.count('server/discover')).toBe(before + 1);
  const stranger = agent([], [lab()]);
  expect(await stranger.run('Go')).toMatchObject({ status: 'failed', error: { type: 'init_error' } });
  expect(stranger.requests).toEqual([]);
  release();
  expect(await first).toMatchObject({ status: 'completed' });
});

test('rejected credentials end the run without a sign-in, unless its toolkit is not required', async () => {
  const toolkit = lab({ headers: { Authorization: 'Bearer wrong-token-98765' } });
  const run = await agent([], [toolkit]).run('Go');
  expect(run).toMatchObject({ status: 'failed', output: [], error: { type: 'init_error' } });
  expect(run.error?.message).toContain('HTTP 401');
  expect(run.error?.message).toContain('I do not accept [hidden]');
  const optional = await agent([say('Without it.')], [{ ...toolkit, required: false }]).run('Go');
  expect(textOfRun(optional)).toBe('Without it.');
  expect(await server.api.list('/v1/agents/actions')).toEqual([]);
});

test('credentials are not sent to the address that a server redirects to', async () => {
  movedTo = other.url;
  const run = await agent([], [lab({ authorization: TOKEN, headers: { 'x-tenant': 'a' } })]).run('Go');
  expect(run).toMatchObject({ status: 'failed', error: { type: 'init_error' } });
  expect(asked.filter((request) => request.server === 'other')).toEqual([]);
});

test('a registered server takes an authorization, unless the operator has set one', async () => {
  const registered = { type: 'mcp', authorization: TOKEN };
  expect(await agent([say('ok')], [{ ...registered, server: 'test' }]).run('Go')).toMatchObject({
    status: 'completed',
  });
  const place = 'agent.toolkits[0].authorization';
  const operated = [{ ...registered, server: 'operated' }];
  expect(await agent([], operated).refusal('Go')).toEqual([422, 'invalid_agent', place]);
});

test('the credentials of a run that waits are there after a restart', async () => {
  const lookup = { name: 'lookup', description: 'looks up', parameters: { type: 'object' } };
  const toolkits = [lab({ authorization: '{{context.token}}' })];
  const one = agent([use({ name: 'lookup', id: 'c1' }), use({ name: 'act', id: 'c2' }), say('ok')], toolkits, {
    tools: [lookup],
  });
  const { id, status } = await one.run('Go', { context: { token: TOKEN } });
  expect(status).toBe('requires_action');
  await server.restart();
  asked = [];
  const answer = { tool_results: [{ tool_call_id: 'c1', content: 'found' }] };
  const { body } = await server.api.send('POST', `/v1/runs/${id}/resume`, answer);
  expect(body).toMatchObject({ status: 'completed' });
  expect(new Set(asked.map(({ authorization }) => authorization))).toEqual(new Set([`Bearer ${TOKEN}`]));
  expect(server.mcp.calls).toHaveLength(1);
  await eventually(async () => expect(await tablesWith(TOKEN)).toEqual([]));
});
