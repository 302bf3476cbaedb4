import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import { FREE, startCodeServer } from '../../support/code-server.ts';
import { answersTo, cell, cellTurn, responsesIn } from '../../support/code-turns.ts';
import { eventually } from '../../support/eventually.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { TestMcpServer } from '../../support/mcp-server.ts';
import { say } from '../../support/scripted-model.ts';
import type { Chat, TestServer } from '../../support/test-server.ts';

let server: TestServer;
let lab: TestMcpServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  const inputSchema = { type: 'object' as const, properties: { sku: { type: 'string' } }, required: ['sku'] };
  lab = await TestMcpServer.start({
    tools: [
      {
        name: 'add',
        inputSchema,
        annotations: { destructiveHint: false },
        handler: ({ sku }) => `added ${String(sku)}`,
      },
      {
        name: 'wait',
        inputSchema,
        annotations: { readOnlyHint: true },
        handler: () => new Promise<string>(() => undefined),
      },
    ],
  });
  server = await startCodeServer();
});
afterAll(async () => {
  await server.stop();
  await lab.stop();
});

/** An agent whose code may call the tools of the server. */
function agent(asked: string[], config: AgentSpec['config'] = {}): Partial<AgentSpec> {
  const tools = { allowed_callers: ['code' as const], require_approval_for_tools: asked };
  return { ...FREE, config, mcp_servers: [{ type: 'inline', name: 'lab', url: lab.url, ...tools }] };
}

const call = (tool: string, sku: string) =>
  `from mcptools.lab.${tool} import run, Params\nprint(run(Params(sku="${sku}")))`;

const ENDLESS = 'print("begun", flush=True)\nimport time; time.sleep(600)';

const calls = (sku: string) => lab.calls.filter(({ arguments: args }) => args['sku'] === sku);

const interrupt = ({ path }: Chat, body: object = {}) => server.api.send('POST', `${path}/sandbox/interrupt`, body);

const INTERRUPTED = { status: 200, body: { data: { interrupted: true } } };
const NOTHING = { status: 200, body: { data: { interrupted: false } } };

/** Until a cell runs in the kernel of a session, which has run one before. */
async function untilBusy({ path }: Chat): Promise<void> {
  await eventually(async () => {
    const { data } = await server.api.get(`${path}/sandbox`);
    expect(data.kernels).toMatchObject([{ status: 'busy' }]);
  });
}

/** Until the code of a turn resumes after a call. */
async function untilGoneOn({ path }: Chat, turnId: string): Promise<void> {
  await eventually(async () => {
    const { data } = await server.api.get(`${path}/turns/${turnId}/timeline`);
    expect(data).toContainEqual(expect.objectContaining({ kind: 'run_code', pending: true, attempt: 1 }));
  });
}

const isOfCode = (threadId: string): boolean => threadId.startsWith('code_');

test.concurrent('a cell that runs is interrupted, and its turn continues', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: FREE });
  expected(await interrupt(chat)).toMatchObject(NOTHING);
  await cellTurn(chat, ['x = 1']);
  chat.script(cell(ENDLESS), cell('print(x)'), say('done'));
  const running = chat.turn('go');
  await untilBusy(chat);
  expected(await interrupt(chat, { thread_id: 'thr_other' })).toMatchObject(NOTHING);
  expected(await interrupt(chat)).toMatchObject(INTERRUPTED);
  expected(responsesIn(await running.done)).toMatchObject([
    { outcome: 'failed', content: expected.stringContaining('KeyboardInterrupt'), execution: { exit: 'interrupted' } },
    { outcome: 'succeeded', content: '1', execution: { generation: 1 } },
  ]);
  expected(await running.end()).toMatchObject({ status: 'done', output: { content: 'done' } });
  expected(await interrupt(chat)).toMatchObject(NOTHING);
});

test.concurrent('code that has resumed after a call is interrupted, with what it has printed', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: FREE });
  chat.script(cell('print("begun", flush=True)\n!true\nimport time; time.sleep(600)'), say('done'));
  const running = chat.turn('go');
  await untilGoneOn(chat, await running.turnId());
  expected(await interrupt(chat)).toMatchObject(INTERRUPTED);
  expected(responsesIn(await running.done)).toMatchObject([
    { outcome: 'failed', content: expected.stringMatching(/^begun\n[^]*KeyboardInterrupt/) },
  ]);
  expected(await running.end()).toMatchObject({ status: 'done', output: { content: 'done' } });
});

test.concurrent('code that waits for a decision in a running turn is interrupted, and no decision is accepted', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all'], { pause: 'wait' }) });
  chat.script(cell(`print("begun")\n${call('add', 'a-1')}`), say('done'));
  const running = chat.turn('go');
  const asked = await running.type('tool.approval_required');
  expected(await interrupt(chat)).toMatchObject(INTERRUPTED);
  const events = await running.done;
  expected(responsesIn(events, isOfCode)).toMatchObject([{ outcome: 'cancelled' }]);
  expected(responsesIn(events)).toMatchObject([
    { outcome: 'failed', content: expected.stringMatching(/^begun\n/), execution: { exit: 'interrupted' } },
  ]);
  const late = await server.api.send('POST', `${chat.path}/actions`, { input: answersTo([asked]) });
  expected(late.status).toBe(409);
  expected(calls('a-1')).toEqual([]);
});

test.concurrent('code that waits for a tool is interrupted, and the tool is cancelled', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent([]) });
  chat.script(cell(`print("begun")\n${call('wait', 'w-1')}`), cell('1'), say('done'));
  const running = chat.turn('go');
  // It may come again: its host leaves a call that takes long to the turn.
  await eventually(async () => expected(calls('w-1')).not.toEqual([]));
  expected(await interrupt(chat)).toMatchObject(INTERRUPTED);
  const events = await running.done;
  expected(responsesIn(events, isOfCode)).toMatchObject([{ outcome: 'cancelled' }]);
  expected(responsesIn(events)).toMatchObject([
    { outcome: 'failed', content: expected.stringMatching(/^begun\n/), execution: { exit: 'interrupted' } },
    { outcome: 'succeeded', content: '1' },
  ]);
});

test.concurrent('code whose turn has ended waiting is not interrupted: the next turn answers it', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all']) });
  const asked = await cellTurn(chat, [call('add', 'b-1')]);
  expected(await interrupt(chat)).toMatchObject({ status: 409, body: { error: { code: 'actions_pending' } } });
  expected(await interrupt(chat, { thread_id: 'thr_other' })).toMatchObject(NOTHING);
  expected(responsesIn(await chat.turn(answersTo(asked)).done)).toMatchObject([{ content: 'added b-1' }]);
});

test.concurrent('a forced answer interrupts the cell that runs, and leaves out those behind it', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: FREE });
  await cellTurn(chat, ['x = 1']);
  const code = (id: string, text: string) => ({ name: 'ipython', id, args: { code: text } });
  chat.script((one) => {
    for (const { name, args, id } of [code('c1', ENDLESS), code('c2', 'x = 2')]) one.toolCall(name, args, id);
    one.finish();
  }, say('answer'));
  const running = chat.turn('go');
  await untilBusy(chat);
  await server.api.send('POST', `${chat.path}/force_answer`, {});
  const results = responsesIn(await running.done).toSorted((a, b) => a.tool_call_id.localeCompare(b.tool_call_id));
  expected(results).toMatchObject([
    { outcome: 'failed', execution: { exit: 'interrupted' } },
    { outcome: 'cancelled' },
  ]);
  expected(await running.end()).toMatchObject({ status: 'done', output: { content: 'answer' } });
  expected(responsesIn(await cellTurn(chat, ['print(x)']))).toMatchObject([{ content: '1' }]);
});

test.concurrent('a turn that is to answer after a time interrupts its cell then', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: { ...FREE, config: { answer_after_seconds: 10 } } });
  // It starts the kernel, which may take longer than that.
  await cellTurn(chat, ['x = 1']);
  chat.script(cell(ENDLESS), say('answer'));
  const running = chat.turn('go');
  expected(responsesIn(await running.done)).toMatchObject([
    { outcome: 'failed', content: expected.stringMatching(/^begun\n/), execution: { exit: 'interrupted' } },
  ]);
  expected(await running.end()).toMatchObject({ status: 'done', output: { content: 'answer' }, limit: 'time' });
});

const reset = ({ path }: Chat, body: object = {}, headers: Record<string, string> = {}) =>
  server.api.send('POST', `${path}/sandbox/reset`, body, headers);

/** Until the host has done the resets of a session. */
async function untilReset({ sessionId }: Chat): Promise<void> {
  const { rows } = server.database;
  await eventually(async () => {
    const row = await rows.selectFrom('sandboxes').select('resets').where('session_id', '=', sessionId).execute();
    expect(row).toEqual([{ resets: null }]);
  });
}

const kernelsOf = async ({ path }: Chat) => (await server.api.get(`${path}/sandbox`)).data.kernels;

test.concurrent('a kernel that is reset has none of the variables, and the next cell says so', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: FREE });
  const nothing = await reset(chat);
  expected(nothing).toMatchObject({ status: 200, body: { data: { status: 'none', kernels: [] } } });
  await cellTurn(chat, ['x = 1']);
  const stopped = await reset(chat, { stop: true });
  expected(stopped).toMatchObject({
    status: 200,
    body: { data: { status: 'stopped', kernels: [{ thread_id: 'main' }] } },
  });
  chat.script(cell('open("ran", "w")'), cell('import os; (os.path.exists("ran"), "x" in globals())'), say('done'));
  const running = chat.turn('go');
  expected(responsesIn(await running.done)).toMatchObject([
    {
      outcome: 'failed',
      content: expected.stringMatching(/\(reset\).*\bx\b/),
      execution: { exit: 'stale', generation: 2 },
    },
    { outcome: 'succeeded', content: '(False, False)', execution: { generation: 2 } },
  ]);
  const events = await server.api.list<object>(`${chat.path}/turns/${await running.turnId()}/events?view=full`);
  expected(events).toContainEqual(
    expected.objectContaining({ type: 'kernel.restarted', generation: 2, reason: 'reset', lost: ['x'] }),
  );
});

test.concurrent('the kernel after a reset is started ahead, unless the client does not want it', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: FREE });
  await cellTurn(chat, ['x = 1']);
  await reset(chat, { stop: true });
  await untilReset(chat);
  expected(await kernelsOf(chat)).toMatchObject([{ status: 'stopped', generation: 2 }]);
  await cellTurn(chat, ['x = 1', 'x = 1']);
  await reset(chat);
  await eventually(async () => expected(await kernelsOf(chat)).toMatchObject([{ status: 'ready', generation: 3 }]));
  expected(responsesIn(await cellTurn(chat, ['x']))).toMatchObject([{ execution: { exit: 'stale', generation: 3 } }]);
});

test.concurrent('a reset with a key is done once', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: FREE });
  await cellTurn(chat, ['x = 1']);
  const key = { 'idempotency-key': 'reset-1' };
  await reset(chat, { stop: true }, key);
  await untilReset(chat);
  await cellTurn(chat, ['1', 'x = 2']);
  expected((await reset(chat, { stop: true }, key)).status).toBe(200);
  expected(responsesIn(await cellTurn(chat, ['print(x)']))).toMatchObject([{ content: '2' }]);
  expected(await reset(chat, {}, key)).toMatchObject({
    status: 422,
    body: { error: { code: 'idempotency_key_reused' } },
  });
});

test.concurrent('no kernel is reset under code that runs, or waits in a running turn', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: agent(['@all'], { pause: 'wait' }) });
  await cellTurn(chat, ['x = 1']);
  const refused = { status: 409, body: { error: { code: 'cell_running' } } };
  chat.script(cell(ENDLESS), cell(call('add', 'r-1')), say('done'));
  const running = chat.turn('go');
  await untilBusy(chat);
  expected(await reset(chat)).toMatchObject(refused);
  await interrupt(chat);
  const asked = await running.type('tool.approval_required');
  expected(await reset(chat)).toMatchObject(refused);
  await server.api.send('POST', `${chat.path}/actions`, { input: answersTo([asked]) });
  expected(responsesIn(await running.done)).toMatchObject([{}, { content: 'added r-1' }]);
  expected(responsesIn(await cellTurn(chat, ['print(x)']))).toMatchObject([{ content: '1' }]);
});

test.concurrent('code that a turn has left waiting is lost with a reset: what is allowed then is not executed', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all']) });
  const asked = await cellTurn(chat, [call('add', 'l-1')]);
  expected((await reset(chat, { stop: true })).status).toBe(200);
  const allowed = await chat.turn(answersTo(asked)).done;
  expected(responsesIn(allowed, isOfCode)).toMatchObject([{ outcome: 'cancelled' }]);
  expected(responsesIn(allowed)).toMatchObject([
    { outcome: 'failed', content: expected.stringContaining('(reset)'), execution: { exit: 'lost' } },
  ]);
  expected(calls('l-1')).toEqual([]);
});
