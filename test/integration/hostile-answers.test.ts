import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { EventReader } from '../support/api-client.ts';
import { startHostileServer, type Hostile, type HostileAnswers } from '../support/hostile-server.ts';
import { MAX_STRETCH_MS } from '../support/main-thread.ts';
import { say, ScriptedModel, use } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';

/**
 * A server in its own process streams a turn of its own while other turns meet hostile answers. The tests of each part
 * (`mcp-hostile-answers`, `model-hostile-answers`, `auth-hostile-answers`) have more kinds of answers.
 */

const MB = 1_000_000;
const PROBE = fileURLToPath(new URL('../support/event-loop-probe.ts', import.meta.url));

const result = (fields: string, unit: string, bytes: number, tail: string): Hostile => ({
  head: `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",${fields}`,
  unit,
  bytes,
  tail: `${tail}}}`,
});
const TOOLS = result('"tools":[{"name":"act","inputSchema":{"type":"object"}}]', ' ', 0, '');
const calls = (hostile: Hostile): HostileAnswers => ({ methods: { 'tools/list': TOOLS, 'tools/call': hostile } });
const lists = (hostile: Hostile): HostileAnswers => ({ methods: { 'tools/list': hostile } });
const content = (bytes: number): Hostile => result('"content":[{"type":"text","text":"', 'x', bytes, '"}]');
const keys = (count: number): string => Array.from({ length: count }, (_, i) => `"k${i}":1`).join();

const SERVERS: Record<string, HostileAnswers> = {
  'a result of 60 MB': calls(content(60 * MB)),
  'a result of 300 MB behind gzip': { ...calls(content(300 * MB)), gzip: true },
  'a result of 4 MB': calls(content(4 * MB)),
  'a result of a million objects': calls(result('"content":[],"x":[', '{},', 3 * MB, '{}]')),
  'a result of 49,000 objects': calls(result('"content":[],"structuredContent":{"a":[', '{},', 73_500, '{}]}')),
  'a result that nests a million deep': calls(result('"content":[],"structuredContent":{"a":', '[', MB, '')),
  'a list of 300 MB behind gzip': { ...lists(result('"tools":[],"x":"', 'x', 300 * MB, '"')), gzip: true },
  'a list of 45,000 tools': lists(result('"tools":[', '{},', 67_500, '{}]')),
  'a tool of 20,000 properties': lists(
    result(
      `"tools":[{"name":"act","inputSchema":{"type":"object","properties":{${keys(20_000).replaceAll(':1', ':{}')}}}}]`,
      ' ',
      0,
      '',
    ),
  ),
  'an endless event': {
    methods: { '': { head: 'event: endpoint\ndata: /messages\n\ndata: ', unit: 'x', bytes: 60 * MB } },
    paths: { '/messages': { unit: ' ', bytes: 0 } },
    contentType: 'text/event-stream',
    protocol: '2024-11-05',
  },
};

const PROGRAMS: Record<string, string> = {
  'a message of 60 MB': `'{"jsonrpc":"2.0","id":' + id + ',"result":{"content":[],"x":"' + 'x'.repeat(60_000_000) + '"}}\\n'`,
  'a message of a million values': `'{"jsonrpc":"2.0","id":' + id + ',"result":{"content":[],"x":[' + '{},'.repeat(1e6) + '1]}}\\n'`,
};

const delta = (fields: string): string => `data: {"choices":[{"index":0,"delta":{${fields}}}]}\n\n`;
const ANSWERS: Record<string, string> = {
  'an event of 60 MB': `data: {"x":"${'x'.repeat(60 * MB)}`,
  '70 MB of events': delta(`"content":"${'x'.repeat(500_000)}"`).repeat(140),
  'a million objects': `data: {"x":[${'{},'.repeat(MB)}1]}\n\n`,
  'an event that nests a million deep': `data: ${'['.repeat(MB)}\n\n`,
  '9 MB of calls': delta(
    `"tool_calls":[{"index":0,"id":"a","function":{"name":"a","arguments":"${'x'.repeat(1000)}"}}]`,
  ).repeat(9_000),
};

let folder: string;
let model: ScriptedModel;
let server: ServerProcess;
const stops: (() => Promise<void>)[] = [];
/** The healthy turn. */
let reader: EventReader;
const over = new AbortController();
let words = 0;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-hostile-'));
  model = await ScriptedModel.start();
  const servers: Record<string, object> = {};
  for (const [name, answers] of Object.entries(SERVERS)) {
    const { url, stop } = await startHostileServer(answers);
    stops.push(stop);
    servers[name] = { url };
  }
  for (const [name, answer] of Object.entries(PROGRAMS)) {
    servers[name] = { command: process.execPath, args: ['-e', program(answer)] };
  }
  await writeFile(path.join(folder, 'mcp.json'), JSON.stringify({ servers }));
  server = await ServerProcess.prepare(folder, {
    EVERTURN_MCP_SERVERS: path.join(folder, 'mcp.json'),
    EVERTURN_SHUTDOWN_SECONDS: '1',
    EVENT_LOOP_PROBE: path.join(folder, 'probe'),
    NODE_OPTIONS: `--import=${PROBE}`,
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
  });
  await server.start();
  model.script('healthy', async (call) => {
    for (; !over.signal.aborted; words++) {
      call.text(`w${words} `);
      await sleep(20);
    }
    call.finish();
  });
  reader = await turnOf('healthy');
  await reader.says('w1 ');
});

afterAll(async () => {
  over.abort();
  await server.stop();
  for (const stop of stops) await stop();
  await model.stop();
  await rm(folder, { recursive: true, force: true });
});

/** A program that answers a call with the value of the expression `answer`. */
function program(answer: string): string {
  return `
    const results = {
      initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } },
      'tools/list': { tools: [{ name: 'act', inputSchema: { type: 'object' } }] },
    };
    require('node:readline').createInterface(process.stdin).on('line', (line) => {
      const { id, method } = JSON.parse(line);
      const result = results[method];
      if (method === 'tools/call') process.stdout.write(${answer});
      else if (result) console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
      else if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32601, message: '' } }));
    });`;
}

async function turnOf(agent: string, spec: object = {}): Promise<EventReader> {
  await server.api.putAgent(agent, { ...spec, model: { name: agent } });
  return server.api.turn(await server.api.createSession(agent), 'go');
}

/** The longest time for which the server has blocked its event loop since it was asked before. */
async function longestStretch(): Promise<number> {
  return Number(await text(connect(path.join(folder, 'probe'))));
}

test.each([...Object.keys(SERVERS), ...Object.keys(PROGRAMS)])('an MCP server with %s', async (name) => {
  const agent = name.replaceAll(/\W+/g, '-');
  model.script(agent, use({ name: 'act' }), say('so be it'));
  await longestStretch();
  const turn = await turnOf(agent, {
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name, require_approval_for_tools: [] }],
  });
  expect(await turn.end()).toMatchObject({ status: 'done', output: { content: 'so be it' } });
  expect(await longestStretch()).toBeLessThan(MAX_STRETCH_MS);
});

test.each(Object.entries(ANSWERS))('a model with %s', async (name, answer) => {
  const agent = name.replaceAll(/\W+/g, '-');
  model.script(agent, (call) => {
    call.raw(answer);
    call.end();
  });
  await longestStretch();
  expect(await (await turnOf(agent)).end()).toMatchObject({ status: 'error' });
  expect(await longestStretch()).toBeLessThan(MAX_STRETCH_MS);
});

test('the turn that was streamed meanwhile is complete', async () => {
  over.abort();
  const end = await reader.end();
  const content = Array.from({ length: words }, (_, i) => `w${i} `).join('');
  expect(end).toMatchObject({ status: 'done', output: { content } });
});
