import { expect, test } from 'vitest';
import { jsonBytes } from '../core/text.ts';
import { searchResult } from './search-tools.ts';
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

function search(toolset: Toolset, args: object) {
  const { text, foundTools } = searchResult(toolset, JSON.stringify(args));
  return { ...(JSON.parse(text) as { tools: Record<string, unknown>[]; note: string }), foundTools, text };
}

test('the found tools are described, and are offered from then on', () => {
  const { tools, foundTools, note } = search(toolsetOf(3), { query: 'tool 1' });
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

test('a search returns 5 tools, or as many as requested, and says how many more match', () => {
  expect(search(toolsetOf(30), { query: 'something' })).toMatchObject({
    tools: { length: 5 },
    note: expect.stringContaining('25 more match'),
  });
  expect(search(toolsetOf(30), { query: 'something', limit: 20 }).tools).toHaveLength(20);
});

test('tools that are not deferred are not searched', () => {
  const { tools, note } = search(toolsetOf(3, { info: { type: 'system', name: 'x' } }), { query: 'something' });
  expect([tools, note]).toEqual([[], 'None of 0 tools matches these words.']);
});

test('the note names servers that cannot be reached', () => {
  const toolset = { ...toolsetOf(1), unavailable: [{ server: 'erp', reason: 'it is down' }] };
  expect(search(toolset, { query: 'nothing' })).toMatchObject({
    tools: [],
    foundTools: [],
    note: 'None of 1 tools matches these words. The tools of erp cannot be searched now: it is down',
  });
});

test('a result is small even if descriptions and schemas are large', () => {
  const large = { description: 'ü'.repeat(100_000), parameters: { type: 'object', title: 'x'.repeat(7_000) } };
  const some = search(toolsetOf(20, large), { query: 'tool', limit: 20 });
  expect(jsonBytes(some.text)).toBeLessThan(48 * 1024);
  expect(some.tools.length).toBeGreaterThan(1);
  expect(some.foundTools).toHaveLength(some.tools.length);
  const huge = { ...large, parameters: { type: 'object', title: 'x'.repeat(100_000) } };
  const [one] = search(toolsetOf(1, huge), { query: 'tool' }).tools;
  // The model gets the schema when the tool is offered.
  expect(one).not.toHaveProperty('input_schema');
});
