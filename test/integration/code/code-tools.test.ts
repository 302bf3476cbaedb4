import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import type { Frame } from '../../support/api-client.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { cellTurn, responsesIn } from '../../support/code-turns.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { TestMcpServer } from '../../support/mcp-server.ts';
import { say, textOf, use } from '../../support/scripted-model.ts';
import type { Chat, TestServer } from '../../support/test-server.ts';

let server: TestServer;
let shop: TestMcpServer;
let mail: TestMcpServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

const sku = { type: 'object' as const, properties: { sku: { type: 'string' } }, required: ['sku'] };

beforeAll(async () => {
  shop = await TestMcpServer.start({
    tools: [
      {
        name: 'create-order',
        description: 'Creates an order.\nIt is sent at once.',
        annotations: { readOnlyHint: false, destructiveHint: false },
        inputSchema: sku,
        handler: ({ sku: id }) => `ordered ${String(id)}`,
      },
      {
        name: 'find',
        description: 'Finds what is in stock.',
        annotations: { readOnlyHint: true },
        inputSchema: sku,
        outputSchema: { type: 'object', properties: { left: { type: 'integer' } }, required: ['left'] },
        handler: () => ({ content: [], structuredContent: { left: 3 } }),
      },
    ],
  });
  mail = await TestMcpServer.start({ tools: [{ name: 'send', description: 'Sends.', handler: () => 'sent' }] });
  server = await startCodeServer();
});
afterAll(async () => {
  await server.stop();
  await shop.stop();
  await mail.stop();
});

/** An agent whose code may call the tools of one server, and whose model those of another one. */
function agent(actions: object = {}): Partial<AgentSpec> {
  return {
    code_actions: { approvals: 'allow', ...actions },
    mcp_servers: [
      { type: 'inline', name: 'Shop', url: shop.url, allowed_callers: ['code'] },
      { type: 'inline', name: 'mail', url: mail.url },
    ],
  };
}

interface Found {
  import: string;
  signature: string;
  description: string;
  path: string;
}

/** The results of the tools of a turn, in which the model calls them one after the other. */
async function answers(chat: Chat, calls: { name: string; args: object }[]): Promise<Frame[]> {
  chat.script(...calls.map((call, i) => use({ ...call, id: `c${i}` })), say('done'));
  return chat.turn('go').done;
}

function found(events: Frame[], n: number): { tools: Found[]; note?: string } {
  return JSON.parse(responsesIn(events)[n]?.content ?? '') as { tools: Found[]; note?: string };
}

test.concurrent('the model lists the tools of its code, and what it gets imports them', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent() });
  const events = await answers(chat, [
    { name: 'list_code_tools', args: {} },
    { name: 'list_code_tools', args: { category: 'shop' } },
    { name: 'search_tools', args: { query: 'stock' } },
  ]);
  expected(responsesIn(events)[0]?.content).toBe('{"categories":[{"category":"shop","tools":2}]}');
  const { tools } = found(events, 1);
  expected(tools).toEqual([
    {
      import: 'from mcptools.shop.create_order import run, Params',
      signature: 'run(Params(sku: str)) -> str',
      description: 'Creates an order.',
      path: '/tools/mcptools/shop/create_order.py',
    },
    {
      import: 'from mcptools.shop.find import run, Params',
      signature: 'run(Params(sku: str)) -> Result',
      description: 'Finds what is in stock.',
      path: '/tools/mcptools/shop/find.py',
    },
  ]);
  const [hit] = found(events, 2).tools;
  expected(hit).toMatchObject({ import: 'from mcptools.shop.find import run, Params', server: 'Shop' });
  const ran = await cellTurn(chat, [`${hit?.import}\nprint(run(Params(sku="a")).left)`]);
  expected(responsesIn(ran)).toMatchObject([{ outcome: 'succeeded', content: '3' }]);
});

test.concurrent('code calls the demo server, which a server without keys has', async ({ expect: expected }) => {
  const demo = { type: 'truefoundry-mcp-registry' as const, name: 'demo', allowed_callers: ['code' as const] };
  const chat = await server.chat({ spec: { ...agent(), mcp_servers: [demo] } });
  const search = 'from mcptools.demo.search_notes import run, Params\nprint(run(Params(word="script")))';
  const [ran] = responsesIn(await cellTurn(chat, [search]));
  expected(ran).toMatchObject({ outcome: 'succeeded', content: '- The demo model is a script.' });
});

test.concurrent('the prompt has the categories with the number of their tools, and no signature', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent() });
  await answers(chat, []);
  const [request] = chat.requests();
  const system = textOf(request?.messages[0]);
  expected(system).toContain('shop (2)');
  expected(system).not.toMatch(/mail \(|create.order|sku/);
  expected(JSON.stringify(request?.tools)).not.toMatch(/create.order|sku/);
});

test.concurrent('only an agent whose code has tools gets the list and the search', async ({ expect: expected }) => {
  const offered = async (spec: Partial<AgentSpec>): Promise<string[]> => {
    const chat = await server.chat({ spec });
    await answers(chat, []);
    const names = new Set(chat.requests()[0]?.tools?.map((tool) => tool.function.name));
    return ['list_code_tools', 'search_tools'].filter((name) => names.has(name));
  };
  const [, other] = agent().mcp_servers ?? [];
  expected(await offered(agent())).toEqual(['list_code_tools', 'search_tools']);
  const mcp_servers = other ? [other] : [];
  expected(await offered({ ...agent(), mcp_servers })).toEqual(['list_code_tools']);
  expected(await offered({ ...agent({ saved_tools: 'none' }), mcp_servers })).toEqual([]);
});

test.concurrent('the model reads the source of a tool, also before any code has run', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: agent() });
  const path = '/tools/mcptools/shop/create_order.py';
  const events = await answers(chat, [
    { name: 'read_file', args: { path, limit: 3 } },
    { name: 'read_file', args: { path: '/tools/mcptools/shop/none.py' } },
    { name: 'read_file', args: { path: '/tools/../workspace/a.txt' } },
    { name: 'read_file', args: { path: '/tools/mcptools/../../home/x' } },
    { name: 'write_file', args: { path, content: 'x' } },
    { name: 'edit_file', args: { path, old_text: 'Creates', new_text: 'x' } },
    { name: 'read_file', args: { path, limit: 1 } },
  ]);
  expected(responsesIn(events).map(({ outcome, content }) => `${outcome}: ${content}`)).toEqual([
    'succeeded: """Creates an order.\nIt is sent at once."""\n\n',
    expected.stringMatching(/^failed: .*does not exist/),
    'failed: "/tools/../workspace/a.txt" leads out of /tools',
    'failed: "/tools/mcptools/../../home/x" leads out of /tools',
    `failed: "${path}" leads out of /workspace`,
    `failed: "${path}" leads out of /workspace`,
    'succeeded: """Creates an order.\n',
  ]);
});

test.concurrent('a rule may deny that sources are read', async ({ expect: expected }) => {
  const rule = { effect: 'deny', action: 'file_read', path: '/tools/**' };
  const chat = await server.chat({ spec: agent({ permissions: [rule] }) });
  const path = '/tools/mcptools/shop/find.py';
  const [read] = responsesIn(await answers(chat, [{ name: 'read_file', args: { path } }]));
  expected(read).toMatchObject({ outcome: 'failed', content: expected.stringContaining('does not allow it') });
});

test.concurrent('clients list the tools of code, with their sources, in pages', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: agent() });
  const list = async (query = '') => (await server.api.send('GET', `${chat.path}/code-tools${query}`)).body;
  const all = await list();
  expected(all.data).toEqual([
    {
      source: 'mcptools',
      category: 'shop',
      name: 'create_order',
      original_name: 'create-order',
      import: 'from mcptools.shop.create_order import run, Params',
      signature: 'run(Params(sku: str)) -> str',
      description: 'Creates an order.\nIt is sent at once.',
      path: '/tools/mcptools/shop/create_order.py',
      has_result_schema: false,
      asks: true,
    },
    expected.objectContaining({ name: 'find', has_result_schema: true, asks: false }),
  ]);
  expected(all.pagination.next_page_token).toBe(null);
  expected((await list('?query=stock')).data).toMatchObject([{ name: 'find' }]);
  expected((await list('?category=mail')).data).toEqual([]);
  const [withSource] = (await list('?category=shop&source=true')).data;
  expected(withSource.code).toContain('def run(params: Params) -> str:');
  const first = await list('?limit=1');
  const second = await list(`?limit=1&page_token=${first.pagination.next_page_token}`);
  expected([first, second].map(({ data }) => data.map((tool: { name: string }) => tool.name))).toEqual([
    ['create_order'],
    ['find'],
  ]);
  expected(second.pagination.next_page_token).toBe(null);
  const other = await list(`?limit=1&category=shop&page_token=${first.pagination.next_page_token}`);
  expected(other.error.code).toBe('invalid_page_token');
});

test.concurrent('a rule of a session changes which tools ask', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: agent() });
  const rule = { effect: 'allow', action: 'tool', tool: 'Shop/create-order' };
  expected((await server.api.send('POST', `${chat.path}/permissions`, rule)).status).toBe(201);
  const { body } = await server.api.send('GET', `${chat.path}/code-tools`);
  expected(body.data).toMatchObject([{ name: 'create_order', asks: false }, { name: 'find' }]);
});

test.concurrent('code that imports a tool of a server that is not available gets the reason', async ({
  expect: expected,
}) => {
  const gone = await TestMcpServer.start({ tools: [{ name: 'send', handler: () => 'sent' }] });
  await gone.stop();
  const actions = agent();
  const mcp_servers = [{ type: 'inline' as const, name: 'Gone', url: gone.url, allowed_callers: ['code' as const] }];
  const chat = await server.chat({ spec: { ...actions, mcp_servers } });
  const [cell] = responsesIn(await cellTurn(chat, ['from mcptools.gone.send import run']));
  expected(cell).toMatchObject({ outcome: 'failed' });
  expected(cell?.content).toContain('ImportError: The tools of Gone are not available now: it ');
});

test('an agent that does not act in code has no tools of code', async () => {
  const chat = await server.chat({ spec: { mcp_servers: [{ type: 'inline', name: 'mail', url: mail.url }] } });
  const { status, body } = await server.api.send('GET', `${chat.path}/code-tools`);
  expect([status, body.data]).toEqual([200, []]);
});
