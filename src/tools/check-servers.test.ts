import { expect, onTestFinished, test } from 'vitest';
import { TestMcpServer } from '../../test/support/mcp-server.ts';
import { McpRegistry } from '../mcp/registry.ts';
import { checkServers, type CheckedServer } from './check-servers.ts';

async function start() {
  const server = await TestMcpServer.start({
    protocol: '2025-11-25',
    tools: [
      { name: 'find', annotations: { readOnlyHint: true } },
      { name: 'wipe', annotations: { destructiveHint: true } },
      { name: 'note', annotations: { idempotentHint: true } },
      { name: 'debug' },
    ],
  });
  onTestFinished(() => server.stop());
  const registry = new McpRegistry();
  registry.add('crm', { url: server.url });
  const check = (names = registry.names, signal = new AbortController().signal, seen: CheckedServer[] = []) =>
    checkServers(names, {
      registry,
      pool: { allowPrivateUrls: () => false },
      subjectId: 'ann',
      signal,
      onChecked: (checked) => void seen.push(checked),
    });
  return { server, registry, check };
}

test('a check lists the tools of a server, and which of them ask by default', async () => {
  const { check } = await start();
  expect(await check()).toEqual([
    {
      name: 'crm',
      error: null,
      seconds: expect.any(Number),
      transport: 'streamable-http',
      protocol: '2025-11-25',
      tools: [
        { name: 'find', annotation: '@read-only', use: 'run' },
        { name: 'wipe', annotation: '@destructive', use: 'ask' },
        { name: 'note', annotation: '@write', use: 'ask' },
        { name: 'debug', annotation: '@unannotated', use: 'ask' },
      ],
      warnings: [],
    },
  ]);
});

test("a check applies the operator's policy", async () => {
  const { server, registry, check } = await start();
  registry.add('crm', {
    url: server.url,
    tools: ['find', 'debug'],
    require_approval_for_tools: ['find', '@unannotated'],
  });
  const [checked] = await check();
  expect(checked?.tools.map(({ name, use }) => [name, use])).toEqual([
    ['find', 'ask'],
    ['wipe', 'closed'],
    ['note', 'closed'],
    ['debug', 'ask'],
  ]);
});

test('a server that fails is reported with its reason, and the others are checked', async () => {
  const { registry, check } = await start();
  registry.add('broken', { command: '/bin/sh', args: ['-c', 'echo "API_KEY is required" >&2; exit 1'] });
  const seen: CheckedServer[] = [];
  const checked = await check(['broken', 'crm'], undefined, seen);
  expect(checked.map(({ name, error }) => [name, error])).toEqual([
    ['broken', 'ended with exit code 1; stderr: API_KEY is required'],
    ['crm', null],
  ]);
  expect(checked[0]).toMatchObject({ transport: null, protocol: null, tools: [], warnings: [] });
  expect(seen.map(({ name }) => name).toSorted()).toEqual(['broken', 'crm']);
});

test('a check closes what it has opened, also when it is given up', async () => {
  const { server, check } = await start();
  await check();
  expect(server.received.at(-1)).toBe('DELETE');
  server.faults.set('tools/list', 'stall');
  const stop = new AbortController();
  const checking = check(['crm'], stop.signal);
  await expect.poll(() => server.received.at(-1)).toBe('tools/list');
  stop.abort(new Error('given up'));
  await expect(checking).rejects.toThrow('given up');
  expect(server.received.at(-1)).toBe('DELETE');
});
