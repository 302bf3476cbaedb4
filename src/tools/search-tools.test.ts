import { expect, test } from 'vitest';
import { jsonBytes } from '../core/text.ts';
import type { McpServer } from '../spec/agent-spec.ts';
import { searchResult, searchTools, type ImportableTool, type SearchedCode } from './search-tools.ts';
import type { AgentTool, Toolset } from './toolset.ts';

function toolsetOf(count: number, more: Partial<AgentTool> = {}): Toolset {
  const tools = Array.from({ length: count }, (_, i): [string, AgentTool] => [
    `crm__tool_${i}`,
    {
      name: `crm__tool_${i}`,
      description: 'does something',
      parameters: { type: 'object' },
      info: { type: 'mcp', serverId: 'crm', serverName: 'crm', name: `tool_${i}`, deferred: true },
      run: { to: 'server', effect: 'once', approval: false },
      ...more,
    },
  ]);
  return { tools: new Map(tools), servers: [], unavailable: [] };
}

/** Tools of code are those that code may call. */
const uses: SearchedCode['uses'] = (tools) =>
  new Map(
    [...tools].flatMap((tool) =>
      tool.callers?.includes('code') ? [[tool, () => ({ import: `from ${tool.name}`, signature: 'run()' })]] : [],
    ),
  );

function importable(name: string, description = 'does something'): ImportableTool {
  const info = { type: 'mcp', serverId: '', serverName: 'own', name } as const;
  return { name, info, description, parameters: {}, import: `from ${name} import run`, signature: 'run()' };
}

async function search(toolset: Toolset, args: object, code: Partial<SearchedCode> = {}) {
  const { text, foundTools } = await searchResult(toolset, JSON.stringify(args), { uses, others: [], ...code });
  return { ...(JSON.parse(text) as { tools: Record<string, unknown>[]; note: string }), foundTools, text };
}

test('the found tools are described, and are offered from then on', async () => {
  const { tools, foundTools, note } = await search(toolsetOf(3), { query: 'tool 1' });
  expect(tools[0]).toEqual({
    name: 'crm__tool_1',
    server: 'crm',
    description: 'does something',
    input_schema: { type: 'object' },
  });
  expect(foundTools[0]).toEqual({ server: 'crm', name: 'tool_1' });
  expect(foundTools).toHaveLength(tools.length);
  expect(note).toBe('You can call these tools now.');
});

test('a search returns 5 tools, or as many as requested, and says how many more match', async () => {
  expect(await search(toolsetOf(30), { query: 'something' })).toMatchObject({
    tools: { length: 5 },
    note: expect.stringContaining('25 more match'),
  });
  expect((await search(toolsetOf(30), { query: 'something', limit: 20 })).tools).toHaveLength(20);
});

test('tools that are not deferred are not searched', async () => {
  const { tools, note } = await search(toolsetOf(3, { info: { type: 'system', name: 'x' } }), { query: 'something' });
  expect([tools, note]).toEqual([[], 'None of 0 tools matches these words.']);
});

test('the note names servers that cannot be reached', async () => {
  const toolset = { ...toolsetOf(1), unavailable: [{ server: 'erp', reason: 'it is down' }] };
  expect(await search(toolset, { query: 'nothing' })).toMatchObject({
    tools: [],
    foundTools: [],
    note: 'None of 1 tools matches these words. The tools of erp cannot be searched now: it is down',
  });
});

test('a result is small even if descriptions and schemas are large', async () => {
  const large = { description: 'ü'.repeat(100_000), parameters: { type: 'object', title: 'x'.repeat(7_000) } };
  const some = await search(toolsetOf(20, large), { query: 'tool', limit: 20 });
  expect(jsonBytes(some.text)).toBeLessThan(48 * 1024);
  expect(some.tools.length).toBeGreaterThan(1);
  expect(some.foundTools).toHaveLength(some.tools.length);
  const huge = { ...large, parameters: { type: 'object', title: 'x'.repeat(100_000) } };
  const [one] = (await search(toolsetOf(1, huge), { query: 'tool' })).tools;
  // The model gets the schema when the tool is offered.
  expect(one).not.toHaveProperty('input_schema');
});

test('tools of code are found with their imports, and are not offered to the model', async () => {
  const ofCode = toolsetOf(2, { callers: ['code'] });
  const { tools, foundTools, note } = await search(ofCode, { query: 'tool 1' });
  expect(tools[0]).toEqual({
    import: 'from crm__tool_1',
    signature: 'run()',
    server: 'crm',
    description: 'does something',
  });
  expect(foundTools).toEqual([]);
  expect(note).toBe('Your code can call those with an import.');
});

test('a deferred tool that code may call as well is found for both', async () => {
  const ofBoth = toolsetOf(1, { callers: ['model', 'code'] });
  const ofModel = toolsetOf(2);
  const tools = new Map([...ofModel.tools, ...ofBoth.tools]);
  const { note, foundTools, ...found } = await search({ ...ofModel, tools }, { query: 'tool' });
  expect(found.tools.find(({ name }) => name === 'crm__tool_0')).toEqual({
    name: 'crm__tool_0',
    import: 'from crm__tool_0',
    signature: 'run()',
    server: 'crm',
    description: 'does something',
    input_schema: { type: 'object' },
  });
  expect(foundTools).toHaveLength(2);
  expect(note).toBe('You can call these tools now. Your code can call those with an import.');
});

test('a tool that the model is offered without a search is found for code alone', async () => {
  const info = { type: 'mcp', serverId: 'crm', serverName: 'crm', name: 'tool_0' } as const;
  const offered = toolsetOf(1, { info, callers: ['model', 'code'] });
  const { tools, foundTools } = await search(offered, { query: 'tool' });
  expect(tools[0]).not.toHaveProperty('name');
  expect(foundTools).toEqual([]);
});

test('the tool is offered if there is anything to find', () => {
  const { offer } = searchTools(() => Promise.resolve({ uses, others: [] }));
  const server = { type: 'inline', name: 'crm', url: 'https://example.com/mcp' } as const;
  const offered = (more: Partial<McpServer>) =>
    offer({ model: { name: 'm' }, mcp_servers: [{ ...server, ...more }] })?.description;
  expect(offered({})).toBe(undefined);
  expect(offered({ preload: false })).toBe(
    'Search for more tools. These servers have tools that are not listed yet: crm. ' +
      'Describe the task in a few words. You can call the tools that a search finds from then on.',
  );
  // The model could not call what it finds.
  expect(offered({ preload: false, allowed_callers: ['code'] })).toBe(
    'Search for more tools. Your code can call the tools of these servers: crm. ' +
      'Describe the task in a few words. For your code, you get the lines that import them and their signatures.',
  );
  expect(offered({ preload: false, allowed_callers: ['model', 'code'] })).toMatch(/not listed yet: crm.*Your code can/);
});

test('other functions of code rank before the tools of servers, within the limit', async () => {
  const others = [importable('tool', 'd'.repeat(10_000)), importable('other')];
  const { tools, foundTools, note } = await search(toolsetOf(3), { query: 'tool', limit: 2 }, { others });
  expect(tools).toEqual([
    { import: 'from tool import run', signature: 'run()', description: expect.stringContaining('dd') },
    expect.objectContaining({ name: 'crm__tool_0' }),
  ]);
  expect(JSON.stringify(tools[0]).length).toBeLessThan(3_000);
  expect(foundTools).toEqual([{ server: 'crm', name: 'tool_0' }]);
  expect(note).toContain('2 more match');
});

test('a ranking that is improved is of all that is searched, and is what the model gets', async () => {
  const others = [importable('saved')];
  const improve: SearchedCode['improve'] = ({ query, tools, byWords }) => {
    expect([query, tools.length, byWords.length]).toEqual(['saved', 4, 1]);
    return Promise.resolve(tools.toReversed());
  };
  const { tools, foundTools, note } = await search(toolsetOf(3), { query: 'saved', limit: 3 }, { others, improve });
  expect(tools.map(({ name }) => name)).toEqual(['crm__tool_2', 'crm__tool_1', 'crm__tool_0']);
  expect(foundTools).toHaveLength(3);
  expect(note).toContain('1 more match');
});
