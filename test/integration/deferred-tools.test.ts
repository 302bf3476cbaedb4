import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';
import { folded } from '../support/api-client.ts';
import { held, say, textOf, use } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

const inputSchema = { type: 'object' as const, properties: { id: { type: 'string' } }, required: ['id'] };

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', description: 'Looks around.', annotations: { readOnlyHint: true }, handler: () => 'seen' },
        {
          name: 'get_invoice',
          description: 'Gets an invoice.',
          inputSchema,
          annotations: { readOnlyHint: true },
          handler: ({ id }) => ({
            isError: typeof id !== 'string',
            content: [{ type: 'text', text: typeof id === 'string' ? `invoice ${id}` : 'an invoice has an id' }],
          }),
        },
        {
          name: 'delete_invoice',
          description: 'Deletes an invoice.',
          inputSchema,
          annotations: { destructiveHint: true },
          handler: ({ id }) => `deleted ${String(id)}`,
        },
        { name: 'send_mail', description: 'Sends a message.', handler: () => 'sent' },
      ],
    },
  });
});
afterAll(() => server.stop());

function deferring(more: { preload_tools?: string[] } = {}): Partial<AgentSpec> {
  const [registered] = onTestServer.mcp_servers;
  return {
    mcp_servers: [
      { ...registered!, type: 'truefoundry-mcp-registry', preload: false, preload_tools: ['look'], ...more },
    ],
  };
}

const search = (query: string, id = 's1') => use({ name: 'search_tools', args: { query }, id });

function offered(chat: Chat, n: number): string[] {
  return (chat.requests()[n]?.tools ?? []).map(({ function: { name } }) => name);
}

const ALWAYS = ['ask_user_question', 'search_tools', 'create_sub_agent', 'look'];

test('deferred tools are offered with their schemas after a search has found them, in that turn and in later ones', async () => {
  const chat = await server.chat({
    scripts: [
      search('get invoices'),
      use({ name: 'get_invoice', args: { id: '7' }, id: 'g1' }),
      say('Here.'),
      say('Yes.'),
    ],
    spec: deferring(),
  });
  const reader = chat.turn('show me invoice 7');
  expect(await reader.end()).toMatchObject({ output: { content: 'Here.' } });
  expect(offered(chat, 0)).toEqual(ALWAYS);
  expect(offered(chat, 1)).toEqual([...ALWAYS, 'get_invoice', 'delete_invoice']);
  expect(chat.requests()[1]?.tools?.[4]?.function).toEqual({
    name: 'get_invoice',
    description: 'Gets an invoice.',
    parameters: inputSchema,
  });
  expect(JSON.parse(textOf(chat.requests()[1]?.messages.at(-1)))).toMatchObject({
    tools: [
      { name: 'get_invoice', server: 'test', description: 'Gets an invoice.', input_schema: inputSchema },
      { name: 'delete_invoice' },
    ],
  });
  const calls = folded(await reader.done).flatMap((event) =>
    'tool_calls' in event ? (event.tool_calls as { tool_info: object }[]) : [],
  );
  expect(calls.map(({ tool_info: info }) => info)).toEqual([
    { type: 'truefoundry-system', name: 'search_tools' },
    expect.objectContaining({ type: 'mcp', name: 'get_invoice', is_deferred: true }),
  ]);
  await chat.turn('another one?').done;
  expect(offered(chat, 3)).toEqual([...ALWAYS, 'get_invoice', 'delete_invoice']);
});

test('a fork has the tools that were found on its branch, a new root has none', async () => {
  const chat = await server.chat({
    scripts: [say('Hello.'), search('mail'), say('There is one.'), say('Fork.'), say('Root.'), say('On.')],
    spec: deferring(),
  });
  const first = await chat.turn('hi').turnId();
  const reader = chat.turn('find a way to send mail');
  await reader.done;
  await chat.turn('fork', { previous_turn_id: first }).done;
  await chat.turn('root', { previous_turn_id: 'none' }).done;
  await chat.turn('on', { previous_turn_id: await reader.turnId() }).done;
  const requests = chat.requests().map((_, n) => offered(chat, n).slice(ALWAYS.length));
  expect(requests).toEqual([[], [], ['send_mail'], [], [], ['send_mail']]);
});

test('deferred tools need approval as others do', async () => {
  const chat = await server.chat({
    scripts: [search('delete'), use({ name: 'delete_invoice', args: { id: '7' }, id: 'd1' }), say('Gone.')],
    spec: deferring(),
  });
  const first = chat.turn('delete invoice 7');
  expect(await first.end()).toMatchObject({
    output: null,
    required_actions: [{ type: 'tool.approval_required', tool_calls: [{ id: 'd1' }] }],
  });
  const allow = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'd1', approval: { status: 'allow' } };
  const second = chat.turn([allow]);
  expect(await second.end()).toMatchObject({ output: { content: 'Gone.' } });
  expect(await second.type('tool.response')).toMatchObject({ content: 'deleted 7', outcome: 'succeeded' });
  expect(offered(chat, 2)).toEqual([...ALWAYS, 'delete_invoice']);
});

test('a deferred tool that was not searched for can be called, and its server decides on the arguments', async () => {
  const chat = await server.chat({
    scripts: [
      use({ name: 'get_invoice', args: {}, id: 'g1' }, { name: 'get_invoice', args: { id: '8' }, id: 'g2' }),
      use({ name: 'nonsense', id: 'n1' }),
      say('Well.'),
    ],
    spec: deferring(),
  });
  const reader = chat.turn('show me invoice 8');
  await reader.end();
  const responses = (await reader.done).filter((frame) => frame.type === 'tool.response');
  // The first two run at the same time.
  const sorted = responses.toSorted((one, other) => one.tool_call_id.localeCompare(other.tool_call_id));
  expect(sorted.map(({ tool_call_id: id, outcome, content }) => [id, outcome, content])).toEqual([
    ['g1', 'failed', 'an invoice has an id'],
    ['g2', 'succeeded', 'invoice 8'],
    ['n1', 'failed', `There is no tool named nonsense. The tools are: ${ALWAYS.join(', ')}.`],
  ]);
});

test('a search without results says so, and an invalid one is rejected', async () => {
  const chat = await server.chat({
    scripts: [search('quantum'), use({ name: 'search_tools', args: { limit: 3 }, id: 's2' }), say('No luck.')],
    spec: deferring(),
  });
  const reader = chat.turn('go');
  await reader.end();
  const responses = (await reader.done).filter((frame) => frame.type === 'tool.response');
  expect(responses.map(({ outcome, content }) => [outcome, content])).toEqual([
    ['succeeded', '{"tools":[],"note":"None of 3 tools matches these words."}'],
    ['failed', expect.stringContaining("must have required property 'query'")],
  ]);
  expect(offered(chat, 2)).toEqual(ALWAYS);
});

test('an agent without deferred tools has no search tool', async () => {
  const chat = await server.chat({ spec: deferring({ preload_tools: ['@all'] }) });
  await chat.turn('hi').done;
  expect(offered(chat, 0)).toEqual([
    'ask_user_question',
    'create_sub_agent',
    'look',
    'get_invoice',
    'delete_invoice',
    'send_mail',
  ]);
});

test('found tools are in the log, not in the memory of a process', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-deferred-'));
  const mcpFile = path.join(dataDir, 'mcp.json');
  await writeFile(mcpFile, JSON.stringify({ servers: { test: { url: server.mcp.url } } }));
  const { model } = server;
  const process = await ServerProcess.prepare(dataDir, {
    EVERTURN_MCP_SERVERS: mcpFile,
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
  });
  onTestFinished(async () => {
    await process.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  await process.start();
  await process.api.putAgent('restarted', { ...deferring(), model: { name: 'restarted' } });
  const gate = held(
    () => undefined,
    () => undefined,
  );
  model.script('restarted', search('mail'), gate.script, say('Found.'), say('Still there.'));
  const sessionId = await process.api.createSession('restarted');
  const reader = process.api.turn(sessionId, 'mail');
  await gate.reached;
  await process.kill();
  await reader.done.catch(() => undefined);
  gate.release();
  await process.start();
  expect(await process.api.subscribe(sessionId, await reader.turnId()).end()).toMatchObject({ status: 'done' });
  await process.api.turn(sessionId, 'and now?').done;
  const requests = model.requestsTo('restarted').map((request) => request.tools?.map(({ function: f }) => f.name));
  expect(requests).toEqual([ALWAYS, ...[1, 2, 3].map(() => [...ALWAYS, 'send_mail'])]);
});
