import { setImmediate } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { TestMcpServer } from '../../test/support/mcp-server.ts';
import { McpRegistry } from '../mcp/registry.ts';
import type { McpServer } from '../spec/agent-spec.ts';
import { unaskedTools } from './unasked-tools.ts';

async function start() {
  const server = await TestMcpServer.start({
    protocol: '2025-11-25',
    tools: [{ name: 'find', annotations: { readOnlyHint: true } }, { name: 'debug' }],
  });
  onTestFinished(() => server.stop());
  const ask = (...servers: McpServer[]) =>
    unaskedTools(
      { model: { name: 'm' }, mcp_servers: servers },
      { registry: new McpRegistry(), pool: { allowPrivateUrls: () => true } },
    );
  return { server, ask };
}

test('inline servers are asked for tools that run unasked; one that fails has no warning', async () => {
  const { server, ask } = await start();
  const { server: broken } = await start();
  broken.faults.set('tools/list', { status: 500 });
  const warnings = await ask(
    { type: 'inline', name: 'broken', url: broken.url },
    { type: 'inline', name: 'crm', url: server.url },
  );
  expect(warnings).toEqual([expect.stringMatching(/^mcp_servers\.1: tools without annotations .*: debug; /)]);
  expect([server, broken].map(({ received }) => received.at(-1))).toEqual(['DELETE', 'DELETE']);
});

test('the servers of at most four agents are asked at once', async () => {
  const { server } = await start();
  const released = Promise.withResolvers<void>();
  const registry = new McpRegistry();
  const begun: McpServer[] = [];
  const resolve: McpRegistry['resolve'] = (one) => (begun.push(one), registry.resolve(one));
  server.faults.set('initialize', { until: released.promise });
  const inline = { type: 'inline', name: 'crm', url: server.url } as const;
  const asking = Array.from({ length: 6 }, () =>
    unaskedTools(
      { model: { name: 'm' }, mcp_servers: [inline] },
      { registry: { resolve }, pool: { allowPrivateUrls: () => true } },
    ),
  );
  await setImmediate();
  expect(begun).toHaveLength(4);
  released.resolve();
  await Promise.all(asking);
});

test('an agent without inline servers causes no request', async () => {
  const { server, ask } = await start();
  expect(await ask({ type: 'truefoundry-mcp-registry', name: 'crm' })).toEqual([]);
  expect(server.received).toEqual([]);
});
