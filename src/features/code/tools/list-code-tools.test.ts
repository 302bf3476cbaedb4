import { expect, test } from 'vitest';
import { z } from 'zod';
import { jsonBytes } from '../../../core/text.ts';
import type { AgentSpec, McpServer } from '../../../spec/agent-spec.ts';
import type { AgentTool, Toolset } from '../../../tools/toolset.ts';
import { subjectNamed } from '../../../core/subject.ts';
import { codeToolList, LIST_CODE_TOOLS } from './list-code-tools.ts';

const by = subjectNamed('ann');

const server = (name: string, callers?: McpServer['allowed_callers']): McpServer => ({
  type: 'inline',
  name,
  url: 'https://example.com/mcp',
  ...(callers && { allowed_callers: callers }),
});

const SPEC: AgentSpec = {
  model: { name: 'm' },
  mcp_servers: [server('Orders', ['code']), server('crm', ['model', 'code']), server('mail')],
};

function toolOf(serverName: string, name: string, more: Partial<AgentTool> = {}): AgentTool {
  return {
    name: `${serverName}__${name}`,
    description: `Does ${name}.`,
    parameters: { type: 'object', properties: { sku: { type: 'string' } }, required: ['sku'] },
    info: { type: 'mcp', serverId: serverName, serverName, name },
    run: { to: 'server', effect: 'once', approval: false },
    callers: ['code'],
    ...more,
  };
}

function toolset(tools: AgentTool[], unavailable: Toolset['unavailable'] = []): Toolset {
  return { tools: new Map(tools.map((tool) => [tool.name, tool])), servers: [], unavailable };
}

interface Listed {
  categories?: object[];
  tools?: Record<string, string>[];
  note?: string;
}

async function list(tools: Toolset, args: object = {}): Promise<Listed> {
  return JSON.parse(await codeToolList({ ...tools, saved: [] }, SPEC, JSON.stringify(args))) as Listed;
}

const TOOLS = [
  toolOf('Orders', 'create-order', {
    description: '\n  Creates an order.\nAt once.',
    resultSchema: { type: 'object' },
  }),
  toolOf('Orders', 'cancel'),
  toolOf('crm', 'find', { callers: ['model', 'code'] }),
  toolOf('mail', 'send', { callers: ['model'] }),
];

test('without a category, the categories are listed with the number of their tools', async () => {
  expect(await list(toolset(TOOLS))).toEqual({
    categories: [
      { category: 'orders', tools: 2 },
      { category: 'crm', tools: 1 },
    ],
  });
});

test('the tools of a category have all that a call needs', async () => {
  const { tools, note } = await list(toolset(TOOLS), { category: 'orders' });
  expect(tools?.map(({ path }) => path)).toEqual([
    '/tools/mcptools/orders/cancel.py',
    '/tools/mcptools/orders/create_order.py',
  ]);
  expect(tools?.[1]).toEqual({
    import: 'from mcptools.orders.create_order import run, Params',
    signature: 'run(Params(sku: str)) -> Result',
    description: 'Creates an order.',
    path: '/tools/mcptools/orders/create_order.py',
  });
  expect(note).toBe(undefined);
});

test('several categories are listed together, and those that do not exist are named', async () => {
  const { tools, note } = await list(toolset(TOOLS), { category: ['crm', 'mail', 'orders'] });
  expect(tools).toHaveLength(3);
  expect(note).toBe('There is no category mail; the categories are: orders, crm.');
});

test('a note names the servers whose tools cannot be listed, if code could call them', async () => {
  const unavailable = [
    { server: 'crm', reason: 'it is down' },
    { server: 'mail', reason: 'it is down' },
  ];
  expect((await list(toolset(TOOLS, unavailable))).note).toBe('The tools of crm cannot be listed now: it is down');
});

test('a list is small whatever servers write, and says how many tools it lacks', async () => {
  const many = Array.from({ length: 1_000 }, (_, i) => toolOf('crm', `tool_${i}`, { description: '☃'.repeat(50_000) }));
  const { tools = [], note } = await list(toolset(many), { category: 'crm' });
  expect(jsonBytes(JSON.stringify(tools))).toBeLessThan(48 * 1024);
  expect(tools.length).toBeGreaterThan(10);
  expect(note).toBe(`${1_000 - tools.length} more tools do not fit: search_tools finds them.`);
});

test('saved tools stand before those of servers, and may share their categories', async () => {
  const about = { kind: 'tool' as const, signature: 'run()', version: 1, hash: 'h', createdBy: by, updatedAt: '' };
  const saved = [
    { ...about, category: 'crm', name: 'find_all', description: 'Finds all.\nSlowly.' },
    { ...about, category: 'orders', name: 'cancel', description: 'Parses.', kind: 'parser' as const },
  ];
  const listed = async (args: object) =>
    JSON.parse(await codeToolList({ ...toolset(TOOLS), saved }, SPEC, JSON.stringify(args))) as Listed;
  expect((await listed({})).categories).toEqual([
    { category: 'crm', tools: 1, source: 'saved' },
    { category: 'orders', tools: 1, source: 'saved' },
    { category: 'orders', tools: 2 },
    { category: 'crm', tools: 1 },
  ]);
  expect((await listed({ category: ['crm', 'orders'] })).tools?.map(({ import: line }) => line)).toEqual([
    'from gentools.crm.find_all.api import run',
    'from gentools.orders.cancel.api import parse, ParseResult',
    'from mcptools.orders.cancel import run, run_parsed, Params',
    'from mcptools.orders.create_order import run, Params',
    'from mcptools.crm.find import run, Params',
  ]);
  expect((await listed({ category: 'crm' })).tools?.[0]).toEqual({
    import: 'from gentools.crm.find_all.api import run',
    signature: 'run()',
    description: 'Finds all.',
    path: '/tools/gentools/crm/find_all/api.py',
  });
});

test('arguments that do not fit are rejected', async () => {
  for (const args of [{ category: 1 }, { category: [] }, { categories: 'crm' }]) {
    await expect(list(toolset(TOOLS), args)).rejects.toThrow(z.ZodError);
  }
});

test('the tool is offered to agents whose code may call tools, or have saved ones', () => {
  const withoutServers = { ...SPEC, mcp_servers: [server('mail')] };
  expect(LIST_CODE_TOOLS.offer(withoutServers)).toBe(undefined);
  expect(LIST_CODE_TOOLS.offer({ ...withoutServers, code_actions: {} })).toBeDefined();
  expect(LIST_CODE_TOOLS.offer({ ...withoutServers, code_actions: { saved_tools: 'none' } })).toBe(undefined);
  expect(LIST_CODE_TOOLS.offer(SPEC)?.parameters).toMatchObject({
    type: 'object',
    properties: { category: { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'string' } }] } },
    additionalProperties: false,
  });
});
