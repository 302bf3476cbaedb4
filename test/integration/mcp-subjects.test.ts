import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { TestMcpServer } from '../support/mcp-server.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

/** The state of each MCP session. */
const baskets = new Map<string, string[]>();

let server: TestServer;
let shop: TestMcpServer;
let clients: Record<'admin' | 'approver' | 'ann' | 'bob', ApiClient>;
beforeAll(async () => {
  shop = await TestMcpServer.start({
    protocol: '2025-11-25',
    tools: [
      {
        name: 'add',
        annotations: { readOnlyHint: true },
        handler: ({ item }) => {
          const session = shop.calls.at(-1)?.headers['mcp-session-id'] ?? '';
          const basket = [...(baskets.get(session) ?? []), String(item)];
          baskets.set(session, basket);
          return basket.join(', ');
        },
      },
    ],
  });
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,boss:approver=key-of-boss,ann=key-of-ann,bob:user=key-of-bob' },
    mcp: { tools: [{ name: 'wipe' }, { name: 'list', annotations: { readOnlyHint: true } }, { name: 'debug' }] },
    servers: { shop: { url: shop.url } },
  });
  // The same server a second time, open to users.
  await rewriteServers((servers) => ({ ...servers, open: { url: server.mcp.url, drafts: ['user'] } }));
  setClients();
  await clients.admin.putAgent('shopper', {
    model: { name: 'shopper' },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'shop' }],
  });
});
afterAll(async () => {
  await server.stop();
  await shop.stop();
});

function setClients(): void {
  const as = (key: string) => new ApiClient(server.server.url, key);
  clients = { admin: as('key-of-root'), approver: as('key-of-boss'), ann: as('key-of-ann'), bob: as('key-of-bob') };
}

/** Restarts the server with another file of MCP servers. */
async function rewriteServers(change: (servers: object) => object): Promise<void> {
  const file = path.join(server.dataDir, 'mcp.json');
  const { servers } = JSON.parse(await readFile(file, 'utf8')) as { servers: object };
  await writeFile(file, JSON.stringify({ servers: change(servers) }));
  await server.restart();
  setClients();
}

test('a server with sessions gets one for each of ours, also for the same subject', async () => {
  const { ann, bob } = clients;
  const sessions = [
    [ann, await ann.createSession('shopper'), 'milk'],
    [bob, await bob.createSession('shopper'), 'beer'],
    [ann, await ann.createSession('shopper'), 'bread'],
  ] as const;
  const shown: unknown[] = [];
  for (const [client, id, item] of sessions) {
    server.model.script('shopper', use({ name: 'add', args: { item } }), say('Added.'));
    const reader = client.turn(id, 'add');
    expect(await reader.type('tool.response')).toMatchObject({ content: item });
    const { mcp_servers: servers } = await reader.type('mcp.initialize');
    shown.push(servers[0]?.session_id);
    await reader.done;
  }
  const [annSession, annId] = sessions[0];
  server.model.script('shopper', use({ name: 'add', args: { item: 'eggs' } }), say('Added.'));
  expect(await annSession.turn(annId, 'add').type('tool.response')).toMatchObject({ content: 'milk, eggs' });
  expect(new Set(shown).size).toBe(3);
  expect([...baskets.keys()]).toEqual(shown);
});

test('a user cannot use a registered server in a draft unless the operator allows it', async () => {
  const { admin, bob } = clients;
  const spec = { model: { name: 'm' }, ...onTestServer };
  const create = (client: ApiClient, agentSpec: object) =>
    client.send('POST', '/v1/agents/draft-sessions', { agent_spec: agentSpec });
  const refused = await create(bob, spec);
  expect(refused.status).toBe(403);
  expect(refused.body.error).toMatchObject({ code: 'forbidden', param: 'agent_spec.mcp_servers.0.name' });
  expect((await create(admin, spec)).status).toBe(200);
  const { body } = await create(bob, { model: { name: 'm' } });
  const path = `/v1/agents/draft-sessions/${body.data.id}`;
  expect((await bob.send('PATCH', path, { agent_spec: spec })).status).toBe(403);
});

test('a draft of a user asks for approval on a server that is open to it, and stops when the server is closed to it', async () => {
  const { approver, bob } = clients;
  const agentSpec = {
    model: { name: 'drafted' },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'open', require_approval_for_tools: [] }],
  };
  const { body } = await bob.send('POST', '/v1/agents/draft-sessions', { agent_spec: agentSpec });
  const { id } = body.data;
  const decision = (callId: string) => [
    { type: 'user.tool_approval', thread_id: 'main', tool_call_id: callId, approval: { status: 'allow' } },
  ];
  server.model.script('drafted', use({ name: 'list', id: 'l1' }), use({ name: 'wipe', id: 'w1' }));
  expect(await bob.turn(id, 'wipe').end()).toMatchObject({ required_actions: [{ type: 'tool.approval_required' }] });
  expect(server.mcp.calls.map(({ tool }) => tool)).toEqual(['list']);
  // An approver decides on the agent of the owner, with the servers that the owner may use.
  server.model.script('drafted', use({ name: 'debug', id: 'd1' }));
  await approver.turn(id, decision('w1')).end();
  expect(server.mcp.calls.map(({ tool }) => tool)).toEqual(['list', 'wipe']);
  await rewriteServers((servers) => ({ ...servers, open: { url: server.mcp.url } }));
  for (const client of [clients.approver, clients.bob]) {
    const refused = await client.send('POST', `/v1/agents/sessions/${id}/turns`, { input: decision('d1') });
    expect(refused.status).toBe(403);
    expect(refused.body.error.message).toContain('the MCP server open is not open to the drafts of bob');
  }
  expect(server.mcp.calls.map(({ tool }) => tool)).toEqual(['list', 'wipe']);
});

test('the demo of a server without keys is removed when it starts with keys', async () => {
  const own = await startTestServer();
  onTestFinished(() => own.stop());
  const status = async (method: string, of: string, body?: object) =>
    (await new ApiClient(own.server.url, 'key-of-root').send(method, `/v1/agents/${of}`, body)).status;
  const spec = { model: { name: 'm' }, mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'demo' }] };
  expect([await status('GET', 'demo'), await status('PUT', 'mine', spec)]).toEqual([200, 200]);
  await own.restart({ EVERTURN_API_KEYS: 'root:admin=key-of-root' });
  expect([await status('GET', 'demo'), await status('PUT', 'mine', spec)]).toEqual([404, 422]);
  // An agent of that name that a user has created is kept.
  await status('PUT', 'demo', { model: { name: 'm' } });
  await own.restart();
  expect(await status('GET', 'demo')).toBe(200);
});
