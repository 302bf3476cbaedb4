import { expect, test } from 'vitest';
import { rankTools } from './rank-tools.ts';
import type { AgentTool } from './toolset.ts';

function tool(name: string, description: string, { server = 'crm', properties = {} } = {}): AgentTool {
  return {
    name,
    description,
    parameters: { type: 'object', properties },
    info: { type: 'mcp', serverId: server, serverName: server, name, deferred: true },
    run: { to: 'server', effect: 'once', approval: false },
  };
}

const TOOLS = [
  tool('create_invoice', 'Writes an invoice for a customer.', { properties: { dueDate: {} } }),
  tool('sendInvoice', 'Sends a document to a customer by mail.'),
  tool('list-customers', 'Lists all customers, page by page.'),
  tool('create_issue', 'Opens an issue in a repository.', { server: 'github' }),
  tool('create_pull_request', 'Proposes a change to a repository.', { server: 'github' }),
  tool('search', 'Looks for anything in documents, mails, invoices and the calendar of a customer.'),
  tool('天気予報', '東京の天気を調べる'),
];

async function ranked(query: string): Promise<string[]> {
  return (await rankTools(TOOLS, query)).map(({ name }) => name);
}

test.each([
  ['words of a name in any casing style', 'send invoice', 'sendInvoice'],
  ['other forms of a word', 'customer list', 'list-customers'],
  ['the name of a server', 'github pull', 'create_pull_request'],
  ['a parameter', 'due', 'create_invoice'],
  ['a rare word rather than a common one', 'create issue', 'create_issue'],
  ['its exact name, before similar names', 'search', 'search'],
  ['words of languages without spaces', '明日の天気', '天気予報'],
])('the first result matches by %s', async (_, query, first) => {
  expect((await ranked(query))[0]).toBe(first);
});

test('a word in a name weighs more than one in a description', async () => {
  const names = await ranked('invoices');
  expect(names.toSorted()).toEqual(['create_invoice', 'search', 'sendInvoice']);
  expect(names.at(-1)).toBe('search');
});

test('a tool that no word matches is not found', async () => {
  expect(await ranked('quantum')).toEqual([]);
  expect(await ranked('  ?! ')).toEqual([]);
  expect(await rankTools([], 'invoice')).toEqual([]);
  // A prefix of two letters matches too many words.
  expect(await ranked('cr')).toEqual([]);
});

test('the order is stable, and equal ranks keep the order of the tools', async () => {
  const alike = ['a', 'b', 'c'].map((name) => tool(name, 'does something'));
  expect(await rankTools(alike, 'something')).toEqual(alike);
});

test('other work is done while many tools are ranked', async () => {
  const many = Array.from({ length: 2_000 }, (_, i) => tool(`tool ${i}`, 'does something else '.repeat(50)));
  let others = 0;
  setImmediate(() => (others += 1));
  expect(await rankTools(many, 'something')).toHaveLength(2_000);
  expect(others).toBe(1);
});
