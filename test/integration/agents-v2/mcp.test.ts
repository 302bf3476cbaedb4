import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as OlderClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as OlderTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MAX_WAIT_SECONDS } from '../../../src/api/agents-v2/mcp/wait-for-session.ts';
import type { SessionResult } from '../../../src/api/agents-v2/mcp/session-result.ts';
import { fromUuid } from '../../../src/api/agents-v2/session-ids.ts';
import { AgentSession, agentNamed } from '../../support/agents-v2.ts';
import { ApiClient } from '../../support/api-client.ts';
import { held, say, use } from '../../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../../support/test-server.ts';

/** The tools of `/mcp`, by clients of both revisions of the protocol. */

let server: TestServer;
let ann: ApiClient;
beforeAll(async () => {
  const keys = 'ann:admin=key-of-ann,bob:user=key-of-bob,eve:approver=key-of-eve';
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: keys },
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
  ann = new ApiClient(server.api.url, 'key-of-ann');
});
afterAll(() => server.stop());

interface ToolResult {
  isError?: boolean;
  structuredContent?: Record<string, unknown>;
  content: { type: string; text?: string }[];
}

interface McpClient {
  listTools(): Promise<{ tools: { name: string; outputSchema?: unknown }[] }>;
  callTool(
    call: { name: string; arguments?: Record<string, unknown>; _meta?: Record<string, unknown> },
    options?: { signal?: AbortSignal },
  ): Promise<ToolResult>;
  close(): Promise<void>;
}

const INFO = { name: 'test', version: '1' };
const CLIENTS: Record<string, (url: URL, headers: Record<string, string>) => Promise<McpClient>> = {
  '2026-07-28': async (url, headers) => {
    const client = new Client(INFO, { versionNegotiation: { mode: { pin: '2026-07-28' } } });
    await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
    return client as unknown as McpClient;
  },
  '2025-11-25': async (url, headers) => {
    const client = new OlderClient(INFO);
    await client.connect(new OlderTransport(url, { requestInit: { headers } }));
    const callTool: McpClient['callTool'] = async (call, options) =>
      (await client.callTool(call, undefined, options)) as ToolResult;
    return { listTools: () => client.listTools(), callTool, close: () => client.close() };
  },
};

async function connect(revision: string, key = 'key-of-ann'): Promise<McpClient & AsyncDisposable> {
  const connectTo = CLIENTS[revision];
  if (!connectTo) throw new Error(revision);
  const client = await connectTo(new URL(`${server.api.url}/mcp`), { authorization: `Bearer ${key}` });
  return Object.assign(Object.create(client) as McpClient, {
    listTools: () => client.listTools(),
    callTool: (...args: Parameters<McpClient['callTool']>) => client.callTool(...args),
    [Symbol.asyncDispose]: () => client.close(),
  });
}

/** A session, as a tool has returned it: as structured content, and as text. */
function sessionOf({ isError, structuredContent, content }: ToolResult): SessionResult {
  expect(isError ?? false, content[0]?.text).toBe(false);
  expect(JSON.parse(content[0]?.text ?? '')).toEqual(structuredContent);
  return structuredContent as unknown as SessionResult;
}

function errorOf({ isError, content }: ToolResult): string {
  expect(isError).toBe(true);
  return content[0]?.text ?? '';
}

let agents = 0;

async function newAgent(...scripts: Parameters<TestServer['model']['script']>[1][]): Promise<string> {
  const name = `agent-${++agents}`;
  server.model.script(name, ...scripts);
  await ann.putAgent(name, { model: { name }, instructions: `I am ${name}.` });
  return name;
}

/** A model's answer that the test releases. */
function gate(text: string) {
  return held(
    () => undefined,
    (call) => {
      call.text(text);
      call.finish();
    },
  );
}

describe.each(Object.keys(CLIENTS))('a client of %s', (revision) => {
  test('finds the tools, and runs an agent', async () => {
    await using client = await connect(revision);
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      'run_agent',
      'wait_for_session',
      'list_agents',
      'send_message',
      'cancel_session',
      'share_session',
    ]);
    expect(tools.every(({ outputSchema }) => outputSchema !== undefined)).toBe(true);
    const agent = await newAgent(say('17 and 23.'), say('Only 17.'));
    const listed = await client.callTool({ name: 'list_agents', arguments: {} });
    expect(listed.structuredContent).toMatchObject({
      agents: expect.arrayContaining([{ name: agent, description: `I am ${agent}.` }]),
      next: null,
    });

    const misspelt = { agent, message: 'Hi', wait_second: 1 };
    expect(errorOf(await client.callTool({ name: 'run_agent', arguments: misspelt }))).toContain(
      'unknown key "wait_second": do you mean "wait_seconds"?',
    );

    const first = sessionOf(
      await client.callTool({ name: 'run_agent', arguments: { agent, message: 'Which orders are late?' } }),
    );
    expect(first).toMatchObject({ status: 'completed', answer: '17 and 23.', error: null, is_truncated: false });
    const { session_id } = first;
    const sent = await client.callTool({ name: 'send_message', arguments: { session_id, message: 'Of this week?' } });
    expect(sessionOf(sent).session_id).toBe(session_id);
    const waited = await client.callTool({ name: 'wait_for_session', arguments: { session_id } });
    expect(sessionOf(waited)).toMatchObject({ status: 'completed', answer: 'Only 17.' });

    const { structuredContent } = await client.callTool({ name: 'share_session', arguments: { session_id } });
    expect((await fetch(server.api.url + String(structuredContent?.['share_url']))).status).toBe(200);
  });

  test('is told to wait when the time of a call is over, and to wait no more when the session is cancelled', async () => {
    await using client = await connect(revision);
    const slow = gate('At last.');
    const agent = await newAgent(slow.script);
    const started = await client.callTool({
      name: 'run_agent',
      arguments: { agent, message: 'Hi', wait_seconds: 0.2 },
    });
    const { session_id, status, answer, next } = sessionOf(started);
    expect(status).toMatch(/pending|running/);
    expect([answer, next]).toEqual([null, expect.stringContaining('wait_for_session')]);
    await slow.reached;
    const waiting = client.callTool({ name: 'wait_for_session', arguments: { session_id } });
    const cancelled = await client.callTool({ name: 'cancel_session', arguments: { session_id } });
    expect(cancelled.structuredContent).toEqual({ session_id, was_found: true });
    expect(sessionOf(await waiting)).toMatchObject({ status: 'interrupted' });
    slow.release();

    const unknown = '0199a8d4-9d1c-7e32-8f5d-2f6a3c1b9e04';
    const nothing = await client.callTool({ name: 'cancel_session', arguments: { session_id: unknown } });
    expect(nothing.structuredContent).toEqual({ session_id: unknown, was_found: false });
  });

  test('may cancel its call: the session continues', async () => {
    await using client = await connect(revision);
    const slow = gate('It went on.');
    const agent = await newAgent(slow.script);
    const group = `cancelled-${revision}`;
    const abort = new AbortController();
    const run = client.callTool(
      { name: 'run_agent', arguments: { agent, message: 'Hi', group_id: group, idempotency_key: group } },
      { signal: abort.signal },
    );
    const outcome = run.catch((error: unknown) => error);
    await slow.reached;
    abort.abort();
    expect(await outcome).toBeInstanceOf(Error);
    slow.release();
    // The same call again finds the same session.
    const again = await client.callTool({
      name: 'run_agent',
      arguments: { agent, message: 'Hi', group_id: group, idempotency_key: group },
    });
    expect(sessionOf(again)).toMatchObject({ status: 'completed', answer: 'It went on.' });
    expect(server.model.requestsTo(agent)).toHaveLength(1);
  });

  test('starts one session and sends one message per operation id, however often it calls', async () => {
    await using client = await connect(revision);
    const agent = await newAgent(say('One.'), say('Two.'), say('Three.'));
    const run = (operation: string, message = 'Hi') =>
      client.callTool({
        name: 'run_agent',
        arguments: { agent, message },
        _meta: { 'io.everturn/operation-id': operation },
      });
    const [first, second] = await Promise.all([run(`${revision}/1`), run(`${revision}/1`)]);
    expect(sessionOf(second).session_id).toBe(sessionOf(first).session_id);
    expect(sessionOf(await run(`${revision}/1`)).session_id).toBe(sessionOf(first).session_id);
    expect(errorOf(await run(`${revision}/1`, 'Another task'))).toMatch(/idempotency_key_reused/);
    const { session_id } = sessionOf(first);
    const send = () =>
      client.callTool({
        name: 'send_message',
        arguments: { session_id, message: 'Go on' },
        _meta: { 'io.everturn/operation-id': `${revision}/2` },
      });
    await send();
    await client.callTool({ name: 'wait_for_session', arguments: { session_id } });
    await send();
    await client.callTool({ name: 'wait_for_session', arguments: { session_id } });
    expect(server.model.requestsTo(agent)).toHaveLength(2);
    expect(sessionOf(await run(`${revision}/3`)).session_id).not.toBe(session_id);
  });
});

const REVISION = '2026-07-28';

test('a session that waits for its client is returned at once, with its calls', async () => {
  await using client = await connect(REVISION);
  server.model.script('caller', use({ name: 'lookup', id: 'call_1', args: { number: 17 } }), say('Late.'));
  const tools = [{ name: 'lookup', description: 'looks it up' }];
  const session = await AgentSession.create(ann, { agent: agentNamed('caller', { tools }), messages: 'Hi' });
  const wait = () => client.callTool({ name: 'wait_for_session', arguments: { session_id: session.id } });
  const before = Date.now();
  expect(sessionOf(await wait())).toMatchObject({
    status: 'awaiting_tool_results',
    pending_tool_calls: [{ tool_name: 'lookup', id: 'call_1', args: { number: 17 } }],
  });
  expect(Date.now() - before).toBeLessThan(MAX_WAIT_SECONDS * 1000);
  await session.post('tool_results', {
    kind: 'tool_result',
    tool_req: { tool_name: 'lookup', id: 'call_1' },
    result: 1,
  });
  await session.settle();
  expect(sessionOf(await wait())).toMatchObject({ status: 'completed', answer: 'Late.', pending_tool_calls: [] });
});

test('a paused session is returned at once, with the reason', async () => {
  await using client = await connect(REVISION);
  const first = gate('First.');
  server.model.script('pausing', first.script, say('Done.'));
  const session = await AgentSession.create(ann, { agent: agentNamed('pausing'), messages: 'Hi', idle_timeout_s: 60 });
  await first.reached;
  const before = Date.now();
  const waiting = client.callTool({ name: 'wait_for_session', arguments: { session_id: session.id } });
  // The message keeps the turn from ending with its first answer, and undoes an earlier pause.
  await session.say('More');
  await session.post('pause');
  first.release();
  expect(sessionOf(await waiting)).toMatchObject({ status: 'paused', paused_for: ['requested'] });
  expect(Date.now() - before).toBeLessThan(MAX_WAIT_SECONDS * 1000);
  await session.post('resume');
});

test('a session that waits for a person is returned at once, with the calls to decide', async () => {
  await using client = await connect(REVISION);
  const agent = await newAgent(use({ name: 'write', id: 'w1', args: { text: 'x' } }), say('Written.'));
  await ann.putAgent(agent, { model: { name: agent }, ...onTestServer });
  const result = sessionOf(await client.callTool({ name: 'run_agent', arguments: { agent, message: 'Write' } }));
  const call = { tool_name: 'write', args: { text: 'x' }, id: 'w1', needs: 'approval' };
  expect(result).toMatchObject({ status: 'paused', pending_tool_calls: [], pending_decisions: [call] });
  const path = `/v1/agents/sessions/${fromUuid(result.session_id)}/actions`;
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  expect((await ann.send('POST', path, { input: [approval] })).status).toBe(200);
  const wait = { name: 'wait_for_session', arguments: { session_id: result.session_id } };
  expect(sessionOf(await client.callTool(wait))).toMatchObject({ status: 'completed', pending_decisions: [] });
});

test('a long answer is cut, and says where all of it is', async () => {
  await using client = await connect(REVISION);
  const agent = await newAgent(say('x'.repeat(150_000)));
  const result = sessionOf(await client.callTool({ name: 'run_agent', arguments: { agent, message: 'Hi' } }));
  expect(result).toMatchObject({ is_truncated: true, next: expect.stringContaining(`GET ${result.session_path}`) });
  expect(String(result.answer)).toHaveLength(100_000);
  expect((await ann.get(result.session_path)).latest_answer).toHaveLength(150_000);
});

test('errors of tools say what is wrong, and rights are those of the API', async () => {
  await using client = await connect(REVISION);
  await using bob = await connect(REVISION, 'key-of-bob');
  await using eve = await connect(REVISION, 'key-of-eve');
  const agent = await newAgent(say('One.'));
  const run = { name: 'run_agent', arguments: { agent, message: 'Hi' } };
  const { session_id } = sessionOf(await client.callTool(run));
  expect(errorOf(await eve.callTool(run))).toMatch(/^forbidden: .*cannot create sessions/);
  expect(errorOf(await client.callTool({ name: 'run_agent', arguments: { agent: 'none', message: 'Hi' } }))).toMatch(
    /^agent_not_found: /,
  );
  for (const name of ['wait_for_session', 'share_session', 'send_message']) {
    const call = { name, arguments: { session_id, ...(name === 'send_message' && { message: 'Hi' }) } };
    expect(errorOf(await bob.callTool(call))).toMatch(/^session_not_found: /);
  }
  expect((await bob.callTool({ name: 'cancel_session', arguments: { session_id } })).structuredContent).toEqual({
    session_id,
    was_found: false,
  });
  const wrong = { name: 'wait_for_session', arguments: { session_id: 'abc' } };
  expect(errorOf(await client.callTool(wrong))).toMatch(/^invalid_request: .*UUID/);
});

test('agents are listed by pages', async () => {
  await using client = await connect(REVISION);
  for (let i = 0; i < 3; i++) await newAgent(say('x'));
  const names: string[] = [];
  let after: string | null = '';
  do {
    const page = await client.callTool({ name: 'list_agents', arguments: { limit: 2, ...(after && { after }) } });
    const { agents: found, next } = page.structuredContent as { agents: { name: string }[]; next: string | null };
    names.push(...found.map(({ name }) => name));
    after = next;
  } while (after !== null);
  expect(names).toEqual([...new Set(names)].toSorted());
  expect(names.length).toBeGreaterThan(3);
});

describe('HTTP', () => {
  const post = (body: unknown, headers: Record<string, string> = {}) =>
    fetch(`${server.api.url}/mcp`, {
      method: 'POST',
      headers: {
        authorization: 'Bearer key-of-ann',
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...headers,
      },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };

  test('requires a key', async () => {
    for (const authorization of ['', 'Bearer unknown']) {
      const { status, headers } = await post(list, { authorization });
      expect([status, headers.get('www-authenticate')]).toEqual([401, 'Bearer']);
    }
    expect((await post(list)).status).toBe(200);
  });

  test.each([
    ['JSON that is cut', '{"jsonrpc": "2.0"', {}, 422],
    ['a batch', [list, list], {}, 422],
    ['no JSON-RPC', { id: 1 }, {}, 422],
    ['another media type', list, { 'content-type': 'text/plain' }, 415],
    ['a client that accepts no event streams', list, { accept: 'application/json' }, 406],
  ])('rejects %s', async (_what, body, headers, status) => {
    expect((await post(body, headers)).status).toBe(status);
  });

  test('has no streams of its own to read, and no sessions to end', async () => {
    for (const method of ['GET', 'DELETE']) {
      const headers = { authorization: 'Bearer key-of-ann', accept: 'text/event-stream' };
      const response = await fetch(`${server.api.url}/mcp`, { method, headers });
      expect([response.status, response.headers.get('allow')]).toEqual([405, 'OPTIONS, POST']);
    }
  });
});
