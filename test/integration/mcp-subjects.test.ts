import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { TestMcpServer } from '../support/mcp-server.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

/** What each MCP session holds. */
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
    servers: {
      shop: { url: shop.url },
    },
  });
  const as = (key: string) => new ApiClient(server.server.url, key);
  clients = { admin: as('key-of-root'), approver: as('key-of-boss'), ann: as('key-of-ann'), bob: as('key-of-bob') };
  await clients.admin.putAgent('shopper', {
    model: { name: 'shopper' },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'shop' }],
  });
});
afterAll(async () => {
  await server.stop();
  await shop.stop();
});

test('a server that keeps sessions has one for each of ours, also of the same subject', async () => {
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
