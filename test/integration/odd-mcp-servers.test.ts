import { describe, expect, onTestFinished, test } from 'vitest';
import { McpPool } from '../../src/mcp/pool.ts';
import { eventually } from '../support/eventually.ts';
import { oddEndpoint, type OddServer } from '../support/odd-mcp-server.ts';
import { SCOPE } from '../support/tool-scope.ts';

const { signal } = new AbortController();

function start(odd: OddServer = {}) {
  const pool = new McpPool({ allowPrivateUrls: () => false });
  onTestFinished(() => pool.close());
  const endpoint = oddEndpoint(odd);
  const calling = { operationId: 'turn_1/call_1', signal, timeoutMs: 60_000 };
  const call = (tool: string, args: Record<string, unknown> = {}) => pool.call(endpoint, SCOPE, tool, args, calling);
  const seen = async (): Promise<{ pid: number; calls: unknown[] }> => {
    const outcome = await call('seen');
    const [block] = outcome.status === 'result' ? outcome.content : [];
    if (block?.type !== 'text') throw new Error(JSON.stringify(outcome));
    return JSON.parse(block.text);
  };
  return { call, seen, list: () => pool.tools(endpoint, SCOPE, signal) };
}

const TOO_LARGE = {
  status: 'result',
  isError: true,
  content: [
    {
      type: 'text',
      text: 'The tool was executed, but its result was not read: its answer is larger than 4 MiB. Request less data per call.',
    },
  ],
};

describe('a result of 5 MB', () => {
  test.each([{}, { idLast: true }])(
    'is cut off (%j), and neither the program nor the calls beside it end',
    async (place) => {
      const { call, seen } = start();
      const { pid } = await seen();
      const held = call('hold');
      await eventually(async () => expect((await seen()).calls).toContainEqual(['hold', {}]));
      expect(await call('big', { bytes: 5_000_000, ...place })).toMatchObject(TOO_LARGE);
      await call('release');
      expect(await held).toMatchObject({ status: 'result', content: [{ text: 'held' }] });
      expect((await seen()).pid).toBe(pid);
    },
  );

  test('without an id belongs to the only call that has no answer', async () => {
    const { call, seen } = start();
    const { pid } = await seen();
    const held = call('hold');
    await eventually(async () => expect((await seen()).calls).toContainEqual(['hold', {}]));
    const big = call('big', { bytes: 5_000_000, noId: true });
    await eventually(async () => expect((await seen()).calls).toContainEqual(['big', expect.anything()]));
    await call('release');
    expect(await big).toMatchObject(TOO_LARGE);
    expect(await held).toMatchObject({ content: [{ text: 'held' }] });
    expect((await seen()).pid).toBe(pid);
  });
});

test('the other tools of a list with odd ones are offered, and the operator is told', async () => {
  const { list } = start({
    tools: [
      { name: 'good', inputSchema: { type: 'object', properties: {} }, annotations: { readOnlyHint: true } },
      { name: 'bare' },
      { name: 'odd', inputSchema: { type: 'string' }, description: null, annotations: { readOnlyHint: 'yes' } },
      { name: 'task', inputSchema: { type: 'object' }, execution: { taskSupport: 'required' } },
      {},
    ],
  });
  const { tools, toolWarnings } = await list();
  const inputSchema = { type: 'object', properties: {} };
  expect(tools).toEqual([
    { name: 'good', inputSchema, annotations: { readOnlyHint: true } },
    { name: 'bare', inputSchema },
    { name: 'odd', inputSchema },
  ]);
  expect(toolWarnings).toEqual([
    expect.stringContaining('the schema of the tool "odd" was repaired'),
    expect.stringContaining('the tool "task" was left out'),
    'a tool without a name was left out',
  ]);
});

describe('resources', () => {
  const png = { uri: 'a:image', mimeType: 'image/png', blob: 'AAAA' };
  const resources = {
    'a:text': [{ uri: 'a:text', text: 'hello' }, { uri: 'a:odd' }],
    'a:image': [png],
    'a:none': 7,
  };

  test('are read by a tool of their server', async () => {
    const { list, call, seen } = start({ tools: [{ name: 'act' }], resources });
    const { tools } = await list();
    expect(tools.map(({ name, annotations }) => [name, annotations])).toEqual([
      ['act', undefined],
      ['read_resource', { readOnlyHint: true }],
    ]);
    const read = (uri: unknown) => call('read_resource', { uri });
    const unread = { type: 'text', text: '[1 of the parts of this result could not be read: "resource"]' };
    expect(await read('a:text')).toMatchObject({
      status: 'result',
      isError: false,
      content: [{ type: 'resource', resource: { uri: 'a:text', text: 'hello' } }, unread],
      connection: { serverId: 'odd' },
    });
    expect(await read('a:image')).toMatchObject({ content: [{ type: 'resource', resource: png }] });
    expect(await read('a:none')).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('can be read') }],
    });
    expect(await read('a:other')).toMatchObject({
      status: 'rejected',
      message: expect.stringContaining('no resources/read'),
    });
    expect((await seen()).calls).toEqual([]);
  });

  test.each([undefined, 7, '', 'a'.repeat(2_049)])('without a usable URI (%j) are not requested', async (uri) => {
    const { call } = start({ tools: [], resources: {} });
    const text = 'uri must be a text of 1 to 2048 characters';
    expect(await call('read_resource', { uri })).toMatchObject({ isError: true, content: [{ text }] });
  });

  test('are read by the own tool of the server, if it has one of that name', async () => {
    const own = { name: 'read_resource', inputSchema: { type: 'object', properties: {} } };
    const { list, call } = start({ tools: [own], resources, results: { read_resource: { content: 'own' } } });
    expect(await call('read_resource', {})).toMatchObject({ status: 'result', isError: false });
    expect((await list()).tools).toEqual([own]);
  });

  test('are not offered by a server that declares none', async () => {
    const { list, call } = start({ tools: [{ name: 'act' }] });
    expect((await list()).tools.map(({ name }) => name)).toEqual(['act']);
    expect(await call('read_resource', { uri: 'a:text' })).toMatchObject({ status: 'rejected' });
  });
});

test('the first ones of more than 1,000 tools are offered', async () => {
  const { list } = start({ tools: Array.from({ length: 1_001 }, (_, i) => ({ name: `t${i}` })) });
  const { tools, toolWarnings } = await list();
  expect(tools).toHaveLength(1_000);
  expect(toolWarnings).toEqual([expect.stringMatching(/^only the first 1000 tools are offered: /)]);
});

describe('an answered call has a result', () => {
  const text = { type: 'text', text: 'yes' };
  const unread = (kinds: string) => ({
    type: 'text',
    text: `[1 of the parts of this result could not be read: ${kinds}]`,
  });
  test.each<[unknown, unknown]>([
    [{ content: [text, { type: 'video', data: '' }] }, { content: [text, unread('"video"')] }],
    [{ content: [{ type: 'text', text: null }, text] }, { content: [text, unread('"text"')] }],
    [
      { content: [text], structuredContent: [1] },
      { content: [text], structuredContent: [1] },
    ],
    [{ structuredContent: { a: 1 } }, { content: [], structuredContent: { a: 1 } }],
    [
      { content: [text], isError: 'no' },
      { content: [text], isError: true },
    ],
    [{ content: [text], 'io.everturn/read': { content: [] } }, { content: [text] }],
    [{ content: 'yes' }, { content: [unread('no type')] }],
  ])('also if that is %j', async (given, expected) => {
    const { call } = start({ results: { odd: given } });
    expect(await call('odd')).toMatchObject({ status: 'result', isError: false, ...(expected as object) });
  });
});

test.each([7, null, { content: [], _meta: 7 }])(
  'a call whose answer is no valid message (%j) has failed, and the program continues',
  async (result) => {
    const { call, seen } = start({ results: { odd: result } });
    const { pid } = await seen();
    const text = expect.stringMatching(/has answered this call.* may have taken effect/);
    expect(await call('odd')).toMatchObject({ status: 'result', isError: true, content: [{ type: 'text', text }] });
    expect((await seen()).pid).toBe(pid);
  },
);
