import { glob, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, test } from 'vitest';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import { folded, inOrder, type Frame } from '../../support/api-client.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { answersTo, askedIn, cell, cellTurn, responsesIn } from '../../support/code-turns.ts';
import { eventually } from '../../support/eventually.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { TestMcpServer } from '../../support/mcp-server.ts';
import { say, use } from '../../support/scripted-model.ts';
import type { Chat, TestServer } from '../../support/test-server.ts';

let server: TestServer;
let lab: TestMcpServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  const sku = { type: 'object' as const, properties: { sku: { type: 'string' } }, required: ['sku'] };
  const write = { readOnlyHint: false, destructiveHint: false };
  lab = await TestMcpServer.start({
    tools: [
      {
        name: 'note',
        annotations: { readOnlyHint: true },
        inputSchema: sku,
        handler: ({ sku: id }) => `note of ${String(id)}`,
      },
      { name: 'add', annotations: write, inputSchema: sku, handler: ({ sku: id }) => `added ${String(id)}` },
      {
        name: 'wipe',
        annotations: { destructiveHint: true },
        inputSchema: sku,
        handler: ({ sku: id }) => `wiped ${String(id)}`,
      },
      {
        name: 'boom',
        annotations: { readOnlyHint: true },
        handler: () => ({ isError: true, content: [{ type: 'text', text: 'it broke' }] }),
      },
      {
        name: 'count',
        annotations: { readOnlyHint: true },
        inputSchema: { type: 'object', properties: { of: { type: 'integer' } }, required: ['of'] },
        outputSchema: {
          type: 'object',
          properties: { stock: { type: 'object', properties: { left: { type: 'integer' } }, required: ['left'] } },
          required: ['stock'],
        },
        handler: ({ of }) => ({ content: [], structuredContent: { stock: { left: of } } }),
      },
      { name: 'odd-name.v2', annotations: { readOnlyHint: true }, handler: () => 'odd' },
      {
        name: 'slow_add',
        annotations: write,
        inputSchema: sku,
        handler: ({ sku: id }) => sleep(6_000, `added ${String(id)}`),
      },
    ],
  });
  // Those of code that waits are not taken away.
  server = await startCodeServer();
});
afterAll(async () => {
  await server.stop();
  await lab.stop();
});

/** An agent whose code may call the tools of the server. */
function agent(asked: string[] = [], more: object = {}): Partial<AgentSpec> {
  const tools = { allowed_callers: ['code' as const], require_approval_for_tools: asked };
  return {
    code_actions: { approvals: 'allow', ...more },
    mcp_servers: [{ type: 'inline', name: 'lab', url: lab.url, ...tools }],
  };
}

/** The calls that the server got from a session, by the operation ids that no other has. */
function effectsOf(ids: string[]): string[] {
  return lab.calls.flatMap(({ tool, arguments: { sku } }) =>
    ids.includes(String(sku)) ? `${tool} ${String(sku)}` : [],
  );
}

/** The operation id of a call that the server got. */
function operationOf(sku: string): string | undefined {
  const call = lab.calls.find(({ arguments: given }) => given['sku'] === sku);
  return /turn_\w+\/[\w/]+/.exec(JSON.stringify(call?.meta))?.[0];
}

/** The ids of the calls that a turn's model has made. */
function calledIn(events: Frame[]): string[] {
  return events.flatMap((event) =>
    event.type === 'model.message.delta' && !isOfCode(event.thread_id)
      ? (event.tool_calls ?? []).flatMap(({ id }) => id ?? [])
      : [],
  );
}

const isOfCode = (threadId: string): boolean => threadId.startsWith('code_');

/** The first import takes seconds on a loaded machine: a cell with a short time limit needs an earlier one that imports. */
const IMPORT = (tool: string) => `from mcptools.lab.${tool} import run, Params`;
const RUN = (id: string) => `print(run(Params(sku="${id}")))`;
const ADD = (id: string) => `${IMPORT('add')}\n${RUN(id)}`;

test.concurrent('code calls a tool of a server, in a thread of its own', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: agent() });
  const events = await cellTurn(chat, [ADD('a-1')]);
  expected(responsesIn(events)).toMatchObject([
    { outcome: 'succeeded', content: 'added a-1', execution: { exit: 'ok', tool_calls: 1 } },
  ]);
  expected(effectsOf(['a-1'])).toEqual(['add a-1']);
  expected(operationOf('a-1')).toMatch(/^turn_\w+\/code_\w+\/call_1$/);
  const created = events.find(({ type }) => type === 'thread.created');
  const message = events.find((event) => event.type === 'model.message' && isOfCode(event.thread_id));
  const [response] = responsesIn(events, isOfCode);
  const done = events.find(({ type }) => type === 'thread.done');
  expected(created).toMatchObject({ kind: 'code', title: 'ipython', agent_info: { name: 'ipython', model: 'python' } });
  const [cellCall] = calledIn(events);
  expected(created).toMatchObject({
    parent: { thread_id: 'main', tool_call_id: cellCall },
    thread_id: message && 'thread_id' in message ? message.thread_id : '',
  });
  expected(response).toMatchObject({ content: 'added a-1', outcome: 'succeeded' });
  expected(done).toMatchObject({ status: 'done', output: { content: 'added a-1' } });
  const types = events.map(
    (event) => `${event.type}${'thread_id' in event && isOfCode(event.thread_id ?? '') ? ' of code' : ''}`,
  );
  const order = [
    'thread.created of code',
    'model.message of code',
    'tool.response of code',
    'thread.done of code',
    'tool.response',
  ];
  expected(types.filter((type) => order.includes(type))).toEqual(order);
});

test.concurrent('a call that asks waits for a person, while the code waits in its kernel', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all']) });
  const asked = await cellTurn(chat, [`before = 1\n${ADD('b-1')}\nprint(before)`]);
  expected(askedIn(asked)).toEqual([{ thread_id: expected.stringMatching(/^code_/), tool_call_id: 'call_1' }]);
  expected(asked.at(-1)).toMatchObject({ type: 'turn.done', state: { status: 'done', output: null } });
  expected(effectsOf(['b-1'])).toEqual([]);
  const allowed = await chat.turn(answersTo(asked)).done;
  expected(effectsOf(['b-1'])).toEqual(['add b-1']);
  expected(responsesIn(allowed)).toMatchObject([
    { outcome: 'succeeded', content: 'added b-1\n1', execution: { exit: 'ok', generation: 1 } },
  ]);
  expected(responsesIn(allowed)[0]?.execution?.waited_ms).toBeGreaterThan(0);
});

test.concurrent('code that asks, and calls a tool that asks, waits twice', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: agent(['@all'], { approvals: 'ask' }) });
  const asksForCode = await cellTurn(chat, [`x = 6\n${ADD('t-1')}\nprint(x * 7)`]);
  expected(askedIn(asksForCode)).toMatchObject([{ thread_id: 'main' }]);
  expected(asksForCode.some(({ type }) => type === 'sandbox.created')).toBe(false);
  const [cellCall] = calledIn(asksForCode);
  const asksForTool = await chat.turn(answersTo(asksForCode)).done;
  const required = asksForTool.find((event) => event.type === 'tool.approval_required');
  expected(required?.thread_id).toMatch(/^code_/);
  expected(required?.tool_calls).toMatchObject([
    {
      action: {
        type: 'tool',
        tool: { server: 'lab', name: 'add' },
        parent: { thread_id: 'main', tool_call_id: cellCall },
      },
    },
  ]);
  expected(effectsOf(['t-1'])).toEqual([]);
  const done = await chat.turn(answersTo(asksForTool)).done;
  expected(effectsOf(['t-1'])).toEqual(['add t-1']);
  expected(responsesIn(done)).toMatchObject([{ outcome: 'succeeded', content: 'added t-1\n42' }]);
  expected(done.at(-1)).toMatchObject({ state: { status: 'done', output: { content: 'done' } } });
});

test.concurrent('the edits of a person to a call of code are what its tool gets, and all of it is in the log', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all']) });
  const asked = await cellTurn(chat, [ADD('n-1')]);
  const edited = { sku: 'n-2' };
  const done = await chat.turn(answersTo(asked, { status: 'allow', arguments: edited })).done;
  expected(effectsOf(['n-1', 'n-2'])).toEqual(['add n-2']);
  expected(responsesIn(done)).toMatchObject([{ outcome: 'succeeded', content: 'added n-2' }]);
  const events = (await server.api.list<{ event: Frame }>(`${chat.path}/events`)).map(({ event }) => event);
  const requested = events.flatMap((event) =>
    event.type === 'model.message' && isOfCode(event.thread_id) ? event.tool_calls : [],
  );
  expected(requested.map((call) => JSON.parse(call.function.arguments))).toEqual([{ sku: 'n-1' }]);
  expected(JSON.stringify(events.filter(({ type }) => type === 'turn.created'))).toContain(JSON.stringify(edited));
  expected(responsesIn(events, isOfCode)).toMatchObject([{ content: 'added n-2', arguments: edited }]);
});

test.concurrent('code that asks past its modules for a tool that it may not call gets an error', async ({
  expect: expected,
}) => {
  const spec = agent();
  const servers = spec.mcp_servers?.map((one) => ({ ...one, disable_tools: ['wipe'] })) ?? [];
  const others = await server.chat({ spec: { ...spec, mcp_servers: servers } });
  const forged = (tool: string, on = 'lab') =>
    `get_ipython()._commands._gateway.call(kind="tool", server="${on}", tool="${tool}", arguments='{"sku": "o-1"}')`;
  const codes = [forged('wipe'), forged('add', 'shop'), `print(${forged('note')}["content"])`];
  expected(responsesIn(await cellTurn(others, codes))).toMatchObject([
    { outcome: 'failed', execution: { exit: 'error', error: { name: 'ToolRunnerError' } } },
    { outcome: 'failed', execution: { exit: 'error', error: { name: 'ToolRunnerError' } } },
    { outcome: 'succeeded', content: 'note of o-1' },
  ]);
  expected(effectsOf(['o-1'])).toEqual(['note o-1']);
});

test.concurrent('a denied call raises an exception with its reason, which the code may catch', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all']) });
  const asked = await cellTurn(chat, [ADD('c-1')]);
  const denied = await chat.turn(answersTo(asked, { status: 'deny', reason: 'not now' })).done;
  expected(responsesIn(denied)).toMatchObject([{ outcome: 'failed', execution: { exit: 'denied' } }]);
  expected(responsesIn(denied)[0]?.content).toMatch(/ApprovalRejectedError: .*add.*not now/);
  const code = `from mcptools import ApprovalRejectedError\ntry:\n  ${ADD('c-2').replace('\n', '\n  ')}\nexcept ApprovalRejectedError:\n  print("caught")`;
  const again = await cellTurn(chat, [code]);
  const caught = await chat.turn(answersTo(again, { status: 'deny' })).done;
  expected(responsesIn(caught)).toMatchObject([{ outcome: 'succeeded', content: 'caught' }]);
  expected(effectsOf(['c-1', 'c-2'])).toEqual([]);
});

test.concurrent('an agent may end with a denial: the code cleans up, and no model is called', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all'], { on_deny: 'end' }) });
  const asked = await cellTurn(chat, [`try:\n  ${ADD('k-1').replace('\n', '\n  ')}\nfinally:\n  print("clean")`]);
  const requests = chat.requests().length;
  const denied = await chat.turn(answersTo(asked, { status: 'deny' })).done;
  expected(responsesIn(denied)[0]?.content).toMatch(/^clean\n[^]*ApprovalRejectedError/);
  const end = { status: 'done', ended_by: 'denial', output: { thread_id: 'main' }, required_actions: [] };
  expected(denied.at(-1)).toMatchObject({ state: end });
  expected(chat.requests()).toHaveLength(requests);
});

test.concurrent('calls in sequence are decided in sequence, each in its own turn', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: agent(['@all']) });
  const first = await cellTurn(chat, [`${ADD('d-1')}\n${ADD('d-2')}`]);
  const second = await chat.turn(answersTo(first)).done;
  expected(effectsOf(['d-1', 'd-2'])).toEqual(['add d-1']);
  expected(askedIn(second)).toMatchObject([{ tool_call_id: 'call_2' }]);
  const last = await chat.turn(answersTo(second)).done;
  expected(responsesIn(last)).toMatchObject([{ outcome: 'succeeded', content: 'added d-1\nadded d-2' }]);
});

test.concurrent('calls that are made together are asked about and answered together', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: agent(['@all']) });
  const code = [
    'import asyncio',
    'from mcptools.lab.add import run_async, Params',
    'print(await asyncio.gather(run_async(Params(sku="e-1")), run_async(Params(sku="e-2"))))',
  ].join('\n');
  const asked = await cellTurn(chat, [code]);
  const required = asked.filter(({ type }) => type === 'tool.approval_required');
  expected(required).toHaveLength(1);
  expected(askedIn(asked)).toHaveLength(2);
  expected(asked.filter((event) => event.type === 'model.message' && isOfCode(event.thread_id))).toHaveLength(1);
  const done = await chat.turn(answersTo(asked)).done;
  expected(responsesIn(done)).toMatchObject([{ content: "['added e-1', 'added e-2']" }]);
  expected(effectsOf(['e-1', 'e-2']).toSorted()).toEqual(['add e-1', 'add e-2']);
});

test.concurrent('structured results are models, and wrong arguments never reach the server', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent() });
  const events = await cellTurn(chat, [
    'from mcptools.lab.count import run, Params\nprint(run(Params(of=3)).stock.left)',
    'run(Params(of="many"))',
    'from mcptools.lab.odd_name_v2 import run, Params\nprint(run(Params()))',
    'from mcptools.lab.boom import run, Params\nrun(Params())',
  ]);
  expected(responsesIn(events).map(({ outcome, content }) => outcome + content)).toEqual([
    'succeeded3',
    expected.stringMatching(/^failed[^]*ValidationError/),
    'succeededodd',
    expected.stringMatching(/^failed[^]*ToolRunnerError: .*it broke/),
  ]);
  const calls = events.flatMap((event) =>
    event.type === 'model.message.delta' && isOfCode(event.thread_id) ? (event.tool_calls ?? []) : [],
  );
  const names = calls.flatMap(({ tool_info: info }) => info?.name ?? []);
  expected(names).toEqual(['count', 'odd-name.v2', 'boom']);
  expected(lab.calls.filter(({ tool }) => tool === 'count').map(({ arguments: args }) => args)).toEqual([{ of: 3 }]);
});

test.concurrent('the tools are not offered to the model, and code without them has no access', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent() });
  await cellTurn(chat, ['1']);
  const offered = chat
    .requests()
    .at(0)
    ?.tools?.map((tool) => tool.function.name);
  expected(offered).toContain('ipython');
  expected(offered).not.toContain('add');
  const other = await server.chat({ spec: { ...agent(), mcp_servers: [] } });
  const events = await cellTurn(other, [ADD('g-1')]);
  expected(responsesIn(events)[0]).toMatchObject({ outcome: 'failed', execution: { exit: 'error' } });
  expected(effectsOf(['g-1'])).toEqual([]);
});

test.concurrent('a turn that waits resumes the code when a person has decided', async ({ expect: expected }) => {
  const chat = await server.chat({ spec: { ...agent(['@all']), config: { pause: 'wait' } } });
  chat.script(cell(ADD('h-1')), say('done'));
  const running = chat.turn('go');
  const asked = await running.type('tool.approval_required');
  expected(effectsOf(['h-1'])).toEqual([]);
  const accepted = await server.api.send('POST', `${chat.path}/actions`, { input: answersTo([asked]) });
  expected(accepted.status).toBe(200);
  const events = await running.done;
  expected(responsesIn(events)).toMatchObject([{ outcome: 'succeeded', content: 'added h-1' }]);
});

test.concurrent('a turn that is cancelled interrupts code that waits, and variables are kept', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: { ...agent(['@all']), config: { pause: 'wait' } } });
  chat.script(cell(`x = 1\n${ADD('l-1')}`));
  const running = chat.turn('go');
  await running.type('tool.approval_required');
  await server.api.send('POST', `${chat.path}/cancel`, {});
  const events = await running.done;
  expected(responsesIn(events, isOfCode)).toMatchObject([{ outcome: 'cancelled' }]);
  expected(responsesIn(events)).toMatchObject([{ outcome: 'cancelled', execution: { exit: 'interrupted' } }]);
  const [next] = responsesIn(await cellTurn(chat, ['print(x)']));
  expected(next).toMatchObject({ outcome: 'succeeded', content: '1', execution: { generation: 1 } });
  expected(effectsOf(['l-1'])).toEqual([]);
});

test.concurrent('a turn that is cancelled interrupts code that runs: its output and its variables are kept, and each call has a result', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent() });
  const runs = `x = 1\nprint("begun")\n${ADD('q-1')}\nimport time; time.sleep(600)`;
  chat.script(
    use({ name: 'ipython', args: { code: runs }, id: 'c1' }, { name: 'ipython', args: { code: 'x = 2' }, id: 'c2' }),
  );
  const running = chat.turn('go');
  await running.next((event) => event.type === 'tool.response' && isOfCode(event.thread_id));
  await server.api.send('POST', `${chat.path}/cancel`, {});
  const events = await running.done;
  expected(events.at(-1)).toMatchObject({ state: { status: 'cancelled' } });
  const results = Object.fromEntries(responsesIn(events).map((result) => [result.tool_call_id, result]));
  expected(results).toMatchObject({
    c1: { outcome: 'cancelled', execution: { exit: 'interrupted' } },
    c2: { outcome: 'cancelled' },
  });
  expected(results['c1']?.content).toMatch(/^begun\n/);
  expected(effectsOf(['q-1'])).toEqual(['add q-1']);
  const [next] = responsesIn(await cellTurn(chat, ['print(x)']));
  expected(next).toMatchObject({ outcome: 'succeeded', content: '1', execution: { generation: 1 } });
});

test.concurrent('readers that are cut after each event have what the lists have, in both views', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent() });
  chat.script(cell(`print("first")\n${ADD('r-1')}\nprint("last")`), say('It is done.'));
  const turnId = await chat.turn('go').turnId();
  const path = `${chat.path}/turns/${turnId}`;
  const read = async (view: string): Promise<void> => {
    const frames = await readOneByOne(`${path}/subscribe${view}`);
    const whole = await server.api.stream(`${path}/subscribe${view}`, {}).done;
    expected(inOrder(folded(frames)), view).toEqual(inOrder(folded(whole)));
    const listed = await server.api.list<object>(`${path}/events${view}`);
    expected(inOrder(listed), view).toEqual(inOrder(folded(whole).slice(1, -1)));
    const types = listed.map((event) => ('type' in event ? event.type : ''));
    expected(types.includes('kernel.started'), view).toBe(view !== '');
  };
  await Promise.all(['', '?view=full'].map(read));
});

/** A turn as a client has it whose connections end after one event each. */
async function readOneByOne(path: string): Promise<Frame[]> {
  const frames: Frame[] = [];
  while (frames.at(-1)?.type !== 'turn.done') {
    const last = frames.at(-1)?.sequence_number;
    const reader = server.api.stream(path, last === undefined ? {} : { after_sequence_number: last });
    frames.push(await reader.next(() => true));
    reader.close();
  }
  return frames;
}

test.concurrent('a call that is allowed for code whose kernel has died meanwhile is not executed', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all']) });
  const dies = `import os, threading, time
def die():
  while not os.path.exists("die"): time.sleep(0.01)
  os.kill(os.getpid(), 9)
threading.Thread(target=die).start()`;
  const asked = await cellTurn(chat, [`${dies}\n${ADD('m-1')}`]);
  // Directly: what clients write into a workspace comes with the next call.
  const { data: sandbox } = await server.api.get(`${chat.path}/sandbox`);
  const [workspace = ''] = await Array.fromAsync(glob(`${tmpdir()}/everturn-kernel-host-*/${sandbox.id}-*/workspace`));
  await writeFile(path.join(workspace, 'die'), '');
  await eventually(async () => {
    const { data } = await server.api.get(`${chat.path}/sandbox`);
    expected(data.kernels).toMatchObject([{ status: 'stopped' }]);
  });
  const allowed = await chat.turn(answersTo(asked)).done;
  expected(responsesIn(allowed, isOfCode)).toMatchObject([{ outcome: 'cancelled' }]);
  expected(responsesIn(allowed)).toMatchObject([{ outcome: 'failed', execution: { exit: 'lost' } }]);
  expected(effectsOf(['m-1'])).toEqual([]);
});

test.concurrent('a new message, instead of an answer, is refused as long as code waits', async ({
  expect: expected,
}) => {
  const chat: Chat = await server.chat({ spec: agent(['@all']) });
  await cellTurn(chat, [ADD('i-1')]);
  const refused = await server.api.send('POST', `${chat.path}/turns`, {
    input: [{ type: 'user.message', content: 'more' }],
    stream: false,
  });
  expected([refused.status, refused.body.error?.code]).toEqual([422, 'actions_pending']);
});

test.concurrent('the time for which people wait does not count against the time limit of a cell', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all']) });
  await cellTurn(chat, [IMPORT('add')]);
  chat.script(cell(RUN('j-1'), { timeout_seconds: 5 }), say('done'));
  const asked = await chat.turn('go').done;
  const { waitedFor } = await past(6_000);
  const allowed = await chat.turn(answersTo(asked)).done;
  expected(responsesIn(allowed)).toMatchObject([{ outcome: 'succeeded', content: 'added j-1' }]);
  expected(responsesIn(allowed)[0]?.execution?.waited_ms).toBeGreaterThanOrEqual(waitedFor);
});

test.concurrent('the time that a tool takes counts against the time limit of a cell, and variables are kept', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent() });
  chat.script(
    cell(`x = 1\n${IMPORT('slow_add')}`),
    cell(`${RUN('p-1')}\nx = 2`, { timeout_seconds: 5 }),
    cell('print(x)'),
    say('done'),
  );
  const events = await chat.turn('go').done;
  expected(responsesIn(events, isOfCode)).toMatchObject([{ outcome: 'succeeded', content: 'added p-1' }]);
  const [, late, after] = responsesIn(events);
  expected(late).toMatchObject({ outcome: 'failed', execution: { exit: 'timeout', generation: 1 } });
  expected(late?.content).toContain('[everturn] time limit of 5 s reached');
  expected(after).toMatchObject({ outcome: 'succeeded', content: '1' });
  expected(effectsOf(['p-1'])).toEqual(['slow_add p-1']);
});

test.concurrent('a call of code after its time limit is refused, and begins no thread', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent() });
  const late = `try:\n  ${RUN('l-1')}\nexcept Exception as error:\n  print(error)`;
  const sleeps = `try:\n  time.sleep(60)\nexcept KeyboardInterrupt:\n  ${late.replaceAll('\n', '\n  ')}`;
  chat.script(cell(`import time\n${IMPORT('add')}`), cell(sleeps, { timeout_seconds: 3 }), say('done'));
  const events = await chat.turn('go').done;
  expected(responsesIn(events)).toMatchObject([
    { outcome: 'succeeded' },
    { outcome: 'failed', content: expected.stringContaining('interrupted'), execution: { exit: 'timeout' } },
  ]);
  expected(events.filter(({ type }) => type.startsWith('thread.'))).toEqual([]);
  expected(effectsOf(['l-1'])).toEqual([]);
});

/** Waits for longer than a limit that is measured in real time. */
async function past(ms: number): Promise<{ waitedFor: number }> {
  await new Promise((resolve) => void setTimeout(resolve, ms));
  return { waitedFor: ms };
}

const CAUGHT = (id: string) =>
  `from mcptools import ApprovalTimeoutError\ntry:\n  ${ADD(id).replace('\n', '\n  ')}\nexcept ApprovalTimeoutError:\n  print("late")`;

test.concurrent('a call without a decision in time expires while its turn waits', async ({ expect: expected }) => {
  const spec = { ...agent(['@all'], { approval_timeout_seconds: 1 }), config: { pause: 'wait' as const } };
  const chat = await server.chat({ spec });
  const events = await cellTurn(chat, [CAUGHT('late-1')]);
  const required = events.find(({ type }) => type === 'tool.approval_required');
  const [reference] = required?.type === 'tool.approval_required' ? required.tool_calls : [];
  expected(reference?.action?.expires_at).toEqual(expected.any(String));
  expected(responsesIn(events, isOfCode)).toMatchObject([{ outcome: 'expired' }]);
  expected(responsesIn(events)).toMatchObject([{ outcome: 'succeeded', content: 'late' }]);
  expected(effectsOf(['late-1'])).toEqual([]);
});

test.concurrent('after the time for a decision the next turn takes a message, and resumes the code first', async ({
  expect: expected,
}) => {
  const chat = await server.chat({ spec: agent(['@all'], { approval_timeout_seconds: 1 }) });
  const asked = await cellTurn(chat, [CAUGHT('late-2')]);
  const post = (input: object[]) => server.api.send('POST', `${chat.path}/turns`, { input, stream: false });
  const message = { type: 'user.message', content: 'more' };
  const created = await eventually(async () => {
    const { status, body } = await post([message]);
    expected(status).toBe(200);
    return body.data.id;
  });
  const events = await server.api.subscribe(chat.sessionId, created).done;
  expected(responsesIn(events, isOfCode)).toMatchObject([{ outcome: 'expired' }]);
  expected(responsesIn(events)).toMatchObject([{ outcome: 'succeeded', content: 'late', execution: { exit: 'ok' } }]);
  expected(
    chat
      .requests()
      .at(-1)
      ?.messages.map(({ role }) => role)
      .slice(-3),
  ).toEqual(['assistant', 'tool', 'user']);
  expected(effectsOf(['late-2'])).toEqual([]);
  const late = await post(answersTo(asked));
  expected([late.status, late.body.error?.code]).toEqual([422, 'call_not_pending']);
});
