import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RegisteredServer } from '../../src/mcp/registry-file.ts';
import type { EventReader } from '../support/api-client.ts';
import { inShort, resumeRun, RunAgent } from '../support/runs.ts';
import { say, use } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** The order of the calls of a message, by a program that keeps a journal of them. */

const program = fileURLToPath(new URL('../support/journal-server.ts', import.meta.url));
const journal: RegisteredServer = { command: process.execPath, args: [program], isolation: 'session' };

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({ servers: { journal, atOnce: { ...journal, ordered: false } } });
});
afterAll(() => server.stop());

const write = (id: string) => ({ name: 'write', id, args: { id } });
const read = (id: string, beside = 1) => ({ name: 'read', id, args: { id, beside } });
const usesOf = (name: string, approvals: string[]) => ({
  mcp_servers: [{ type: 'truefoundry-mcp-registry' as const, name, require_approval_for_tools: approvals }],
});
const allow = (id: string) => ({
  type: 'user.tool_approval',
  thread_id: 'main',
  tool_call_id: id,
  approval: { status: 'allow' },
});

/** The results in the order of the log. */
async function resultsOf(reader: EventReader): Promise<[string, string][]> {
  const frames = await reader.done;
  return frames.flatMap((frame) =>
    frame.type === 'tool.response' ? [[frame.tool_call_id, frame.content] as [string, string]] : [],
  );
}

const SCRIPT = [use(read('r0'), write('w1'), read('r2', 2), read('r3', 2), write('w4'), read('r5')), say('So it is.')];

test('calls run in the order of their message, and neighbours that are read-only run at once', async () => {
  const chat = await server.chat({ scripts: SCRIPT, spec: usesOf('journal', []) });
  const results = await resultsOf(chat.turn('go'));
  expect(results.slice(0, 2)).toEqual([
    ['r0', ''],
    ['w1', 'done'],
  ]);
  expect(new Map(results.slice(2, 4))).toEqual(
    new Map([
      ['r2', 'w1'],
      ['r3', 'w1'],
    ]),
  );
  expect(results.slice(4)).toEqual([
    ['w4', 'done'],
    ['r5', 'w1 w4'],
  ]);
});

test('a call behind one that a person decides runs in the turn that answers, in its place', async () => {
  const chat = await server.chat({ scripts: SCRIPT, spec: usesOf('journal', ['@write']) });
  const first = chat.turn('go');
  expect(await first.end()).toMatchObject({
    status: 'done',
    required_actions: [{ type: 'tool.approval_required', tool_calls: [{ id: 'w1' }, { id: 'w4' }] }],
  });
  expect(await resultsOf(first)).toEqual([['r0', '']]);
  const wrong = await server.api.send('POST', `${chat.path}/turns`, { input: [allow('r2'), allow('w1'), allow('w4')] });
  expect([wrong.status, wrong.body.error?.code]).toEqual([422, 'call_not_pending']);
  const denied = { ...allow('w4'), approval: { status: 'deny' } };
  const second = chat.turn([denied, allow('w1')]);
  expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'So it is.' } });
  expect(new Map(await resultsOf(second))).toEqual(
    new Map([
      ['w4', 'The user denied this tool call.'],
      ['w1', 'done'],
      ['r2', 'w1'],
      ['r3', 'w1'],
      ['r5', 'w1'],
    ]),
  );
});

test('in a turn that waits they stay in their place, and a cancelled turn has not run them', async () => {
  const spec = { ...usesOf('journal', ['@write']), config: { pause: 'wait' as const } };
  const chat = await server.chat({ scripts: SCRIPT, spec });
  const reader = chat.turn('go');
  await reader.type('turn.paused');
  await server.api.send('POST', `${chat.path}/actions`, { input: [allow('w4')] });
  await server.api.send('POST', `${chat.path}/actions`, { input: [allow('w1')] });
  const [, ...results] = await resultsOf(reader);
  expect(results.map(([id]) => id).filter((id) => id.startsWith('w'))).toEqual(['w1', 'w4']);
  expect(new Map(results).get('r5')).toBe('w1 w4');
  const other = await server.chat({ scripts: SCRIPT, spec });
  const cancelled = other.turn('go');
  await cancelled.type('turn.paused');
  await server.api.send('POST', `${other.path}/cancel`, {});
  const frames = await cancelled.done;
  expect(
    frames.flatMap((frame) => (frame.type === 'tool.response' ? [[frame.tool_call_id, frame.outcome]] : [])),
  ).toContainEqual(['r2', 'cancelled']);
});

test('with "ordered": false the calls of a program run at once', async () => {
  const script = use(write('w1'), read('r2'));
  const chat = await server.chat({ scripts: [script], spec: usesOf('atOnce', ['@write']) });
  expect(await resultsOf(chat.turn('go'))).toEqual([['r2', '']]);
});

test('a run delays them too, and asks only about the call that is asked about', async () => {
  const toolkits = [{ type: 'mcp', server: 'journal', require_approval_for_tools: ['write'] }];
  const agent = new RunAgent(server, [use(write('w1'), read('r2')), say('ok')], { toolkits });
  const run = await agent.run('Go');
  expect(run).toMatchObject({ status: 'requires_action', required_action: { approvals: [{ tool_call_id: 'w1' }] } });
  expect(inShort(run.output)).toEqual(['model w1 r2']);
  const ended = await resumeRun(server, run, { approvals: [{ tool_call_id: 'w1', status: 'allow' }] });
  expect(inShort(ended.output)).toEqual(['model w1 r2', 'w1 completed', 'r2 completed', 'model']);
  expect(ended.output[2]).toMatchObject({ output: [{ type: 'text', text: 'w1' }] });
});
