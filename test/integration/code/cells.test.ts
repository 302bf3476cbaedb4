import { afterAll, beforeAll, expect, test } from 'vitest';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { FREE, startCodeServer } from '../../support/code-server.ts';
import type { Frame } from '../../support/api-client.ts';
import { eventually } from '../../support/eventually.ts';
import { say, textOf, use } from '../../support/scripted-model.ts';
import type { Chat, TestServer } from '../../support/test-server.ts';

let server: TestServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  server = await startCodeServer();
});
afterAll(() => server.stop());

const cell = (code: string, more: object = {}) => use({ name: 'ipython', args: { code, ...more } });

/** A turn in which the model runs cells, and its events. */
async function turn(chat: Chat, codes: string[], more?: object): Promise<Frame[]> {
  chat.script(...codes.map((code) => cell(code)), say('done'));
  return chat.turn('go', more).done;
}

/** The results of its cells. */
async function run(chat: Chat, ...codes: string[]): Promise<ToolResponse[]> {
  return responsesIn(await turn(chat, codes));
}

const ok = (content: string) => expect.objectContaining({ outcome: 'succeeded', content });

test.concurrent('a cell runs, and the model gets what it prints', async () => {
  const chat = await server.chat({ spec: FREE });
  const events = await turn(chat, ['x = 41\nprint(6 * 7)']);
  expect(responseIn(events)).toMatchObject({
    outcome: 'succeeded',
    content: '42',
    execution: { generation: 1, exit: 'ok', output_bytes: 3, defined: ['x'] },
  });
  expect(events.find(({ type }) => type === 'sandbox.created')).toMatchObject({
    thread_id: null,
    isolation: 'sandbox',
  });
  expect(chat.requests().at(-1)?.messages.map(textOf).at(-1)).toBe('42');
});

test.concurrent('variables are kept for the next turn, and are not those of another session', async () => {
  const [chat, other] = await Promise.all([server.chat({ spec: FREE }), server.chat({ spec: FREE })]);
  await run(chat, 'x = 41');
  expect(await run(other, "'x' in globals()", 'x = 1')).toEqual([ok('False'), ok('')]);
  expect(await run(chat, 'x + 1')).toEqual([ok('42')]);
  expect(await run(other, 'x')).toEqual([ok('1')]);
});

test.concurrent('by default a person approves code, what was denied does not run, and what was allowed runs once', async () => {
  const appends = cell('with open("ran", "a") as file: file.write("x")\nprint(open("ran").read())');
  const chat = await server.chat({
    spec: { code_actions: {} },
    scripts: [appends, say('I have read the reason.'), appends, say('done')],
  });
  const asked = await chat.turn('go').done;
  expect(asked.filter(({ type }) => type === 'tool.approval_required')).toMatchObject([
    { thread_id: 'main', tool_calls: [{ action: { type: 'code' } }] },
  ]);
  expect(responsesIn(asked)).toEqual([]);
  const denied = await chat.turn([deny(asked, 'not now')]).done;
  expect(responsesIn(denied)).toMatchObject([{ outcome: 'denied' }]);
  expect(chat.requests().at(-1)?.messages.map(textOf).at(-1)).toContain('Reason: not now');
  expect(denied.at(-1)).toMatchObject({ state: { status: 'done', output: { content: 'I have read the reason.' } } });
  const again = await chat.turn('again').done;
  const allowed = await chat.turn([allow(again)]).done;
  expect(responsesIn(allowed)).toEqual([ok('x')]);
});

test.concurrent('unknown tools and invalid arguments are answered at once, without an approval', async () => {
  const chat = await server.chat({
    spec: { code_actions: {} },
    scripts: [use({ name: 'ipython', args: {} }, { name: 'no_such_tool' }), say('done')],
  });
  const events = await chat.turn('go').done;
  expect(responsesIn(events)).toMatchObject([{ outcome: 'failed' }, { outcome: 'failed' }]);
  expect(events.filter(({ type }) => type === 'tool.approval_required')).toEqual([]);
  expect(events.at(-1)).toMatchObject({ state: { status: 'done', output: { content: 'done' }, required_actions: [] } });
});

test.concurrent('a draft is checked as an agent is', async () => {
  const post = async (actions: object) => {
    const agent_spec = { model: { name: 'any' }, code_actions: actions };
    const { status, body } = await server.api.send('POST', '/v1/agents/draft-sessions', { agent_spec });
    return [status, body.error?.code, body.error?.param];
  };
  const place = 'agent_spec.code_actions';
  expect(await post({ kernel: { memory: 1 } })).toEqual([400, 'invalid_request', `${place}.kernel`]);
  expect(await post({ permissions: [{ effect: 'alow', action: 'code' }] })).toEqual([
    400,
    'invalid_request',
    `${place}.permissions.0.effect`,
  ]);
  const tooMuch = { kernel: { memory_mb: 100_000 } };
  expect(await post(tooMuch)).toEqual([422, 'invalid_agent', `${place}.kernel.memory_mb`]);
  // The server has no model for embeddings.
  expect(await post({ tool_search: 'hybrid' })).toEqual([422, 'feature_not_available', `${place}.tool_search`]);
});

test.concurrent('an exception is a failed result with what was printed before it', async () => {
  const chat = await server.chat({ spec: FREE });
  const [response] = await run(chat, 'print("before")\n1 / 0');
  expect(response).toMatchObject({
    outcome: 'failed',
    execution: { exit: 'error', error: { name: 'ZeroDivisionError', message: 'division by zero' } },
  });
  expect(response?.content).toMatch(/^before\n[^]*ZeroDivisionError: division by zero$/);
});

test.concurrent('a cell at its time limit is interrupted, and variables are kept', async () => {
  const chat = await server.chat({ spec: FREE });
  chat.script(cell('x = 1'), cell('while True: pass', { timeout_seconds: 1 }), cell('x'), say('done'));
  const [, timeout, after] = responsesIn(await chat.turn('go').done);
  expect(timeout).toMatchObject({ outcome: 'failed', execution: { exit: 'timeout', generation: 1 } });
  expect(timeout?.content).toContain('[everturn] time limit of 1 s reached');
  expect(after).toEqual(ok('1'));
});

test.concurrent('the time limit of an agent holds for a cell whose model asks for more time', async () => {
  const chat = await server.chat({ spec: { code_actions: { approvals: 'allow', kernel: { timeout_seconds: 1 } } } });
  chat.script(cell('while True: pass', { timeout_seconds: 600 }), say('done'));
  const timeout = responseIn(await chat.turn('go').done);
  expect(timeout).toMatchObject({ outcome: 'failed', execution: { exit: 'timeout' } });
  expect(timeout?.content).toContain('[everturn] time limit of 1 s reached');
});

test.concurrent('code that ignores its interrupt loses its kernel, which is reported', async () => {
  const chat = await server.chat({ spec: FREE });
  // It is deaf before the cell with the limit, however late a processor runs that one: the kernel cannot listen again.
  const deaf = 'import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal = lambda *_: None; x = 1';
  chat.script(
    cell(deaf),
    cell('import time; time.sleep(600)', { timeout_seconds: 1 }),
    cell('"x" in globals()'),
    say('done'),
  );
  const [, unresponsive, after] = responsesIn(await chat.turn('go').done);
  expect(unresponsive).toMatchObject({ outcome: 'failed', execution: { exit: 'timeout', generation: 2 } });
  expect(unresponsive?.content).toMatch(/the kernel has ended \(unresponsive\); lost: .*\bx\b/);
  expect(after).toMatchObject({ outcome: 'succeeded', content: 'False', execution: { generation: 2 } });
  expect(await restarts(chat)).toMatchObject([{ generation: 2, reason: 'unresponsive' }]);
});

test.concurrent('a cell starts in the workspace again after one that has left it', async () => {
  const chat = await server.chat({ spec: FREE });
  const [left, next] = await run(chat, 'import os; os.chdir("/tmp")', 'os.getcwd()');
  expect(left?.content).toContain('[everturn] cwd reset to /workspace');
  expect(next).toEqual(ok("'/workspace'"));
});

test.concurrent('a kernel that ends during a cell is reported, and the next cell runs in another one', async () => {
  const chat = await server.chat({ spec: FREE });
  const codes = [
    'x = 1',
    'import os; os.kill(os.getpid(), 9)',
    '"x" in globals()',
    'import subprocess; subprocess.run("ls")',
  ];
  const [, died, after, blocked] = await run(chat, ...codes);
  expect(died).toMatchObject({ outcome: 'failed', execution: { exit: 'died', generation: 2 } });
  expect(died?.content).toMatch(/the kernel has ended \(died\); lost: .*\bx\b/);
  expect(after).toMatchObject({ outcome: 'succeeded', content: 'False', execution: { generation: 2 } });
  expect(blocked).toMatchObject({ outcome: 'failed', execution: { error: { name: 'PermissionError' } } });
  expect(await restarts(chat)).toMatchObject([
    { generation: 2, previous_generation: 1, reason: 'died', lost: expect.arrayContaining(['x']) },
  ]);
});

test.concurrent('a reset loses the variables, and the cell after it runs', async () => {
  const chat = await server.chat({ spec: FREE });
  await run(chat, 'x = 1');
  chat.script(use({ name: 'ipython_reset', args: {} }), cell('"x" in globals()'), say('done'));
  const events = await chat.turn('go').done;
  expect(responsesIn(events)).toMatchObject([
    { outcome: 'succeeded', content: 'The kernel was reset.', execution: { generation: 2 } },
    { outcome: 'succeeded', content: 'False', execution: { generation: 2 } },
  ]);
});

test.concurrent('a fork does not find the variables of the other branch: its first cell is not executed', async () => {
  const chat = await server.chat({ spec: FREE });
  await run(chat, 'y = 1');
  const [first] = await server.api.list<{ id: string }>(`${chat.path}/turns`, 10);
  await run(chat, 'y = 2');
  const events = await turn(chat, ['print(y)', 'print("ran")'], { previous_turn_id: first?.id });
  const [stale, next] = responsesIn(events);
  expect(stale).toMatchObject({ outcome: 'failed', execution: { exit: 'stale', generation: 2 } });
  expect(stale?.content).toMatch(/none of this code was executed.*\(fork\).*y/);
  expect(next).toMatchObject({ outcome: 'succeeded', content: 'ran', execution: { generation: 2 } });
});

test.concurrent('a plot is a file of the workspace, to which the result links', async () => {
  const chat = await server.chat({ spec: FREE });
  const code = 'import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()';
  const [plotted, found] = await run(
    chat,
    code,
    'import os; [os.path.getsize(f"images/{f}") > 1000 for f in os.listdir("images")]',
  );
  expect(plotted?.content).toMatch(/^!\[[\w-]+-1\.png\]\(images\/[\w-]+-1\.png\)$/);
  expect(found).toEqual(ok('[True]'));
});

test.concurrent('a long result is a file, and the model gets its head and tail', async () => {
  const chat = await server.chat({ spec: FREE });
  const [long, whole] = await run(
    chat,
    'print("a" * 50_000 + "z" * 50_000)',
    'import glob; len(open(glob.glob(".everturn/results/*")[0]).read())',
  );
  expect(long?.content).toMatch(
    /^a{2048}\n\[everturn\] cut: 100000 bytes in all; the whole is in \.everturn\/results\/[\w-]+\.txt\nz{2048}$/,
  );
  expect(whole).toEqual(ok('100000'));
});

test.concurrent('a cancelled turn interrupts its cell, whose output is kept, and variables remain', async () => {
  const chat = await server.chat({ spec: FREE });
  await run(chat, 'x = 1');
  chat.script(cell('print("begun", flush=True)\nopen("begun", "w").close()\nimport time; time.sleep(600)'));
  const reader = chat.turn('go');
  await untilRunning(chat);
  await server.api.send('POST', `${chat.path}/cancel`, {});
  const events = await reader.done;
  expect(responseIn(events)?.outcome).toBe('cancelled');
  expect(events.at(-1)).toMatchObject({ state: { status: 'cancelled', phase: 'tool' } });
  expect(await run(chat, 'x')).toEqual([ok('1')]);
});

/** Until the host has a cell of the session in its workspace. */
async function untilRunning(chat: Chat): Promise<void> {
  await eventually(async () => {
    const turns: { id: string }[] = await server.api.list(`${chat.path}/turns`, 10);
    const { data } = await server.api.get(`${chat.path}/turns/${turns[0]?.id}/timeline?limit=100`);
    expect(data).toContainEqual(
      expect.objectContaining({ kind: 'tool_call', pending: true, started_at: expect.any(String) }),
    );
  });
}

/** The records with `view=full` about the kernels that have replaced another one. */
async function restarts(chat: Chat): Promise<object[]> {
  const events: { event: { type: string } }[] = await server.api.list(`${chat.path}/events?view=full`);
  return events.flatMap(({ event }) => (event.type === 'kernel.restarted' ? event : []));
}

type ToolResponse = Extract<Frame, { type: 'tool.response' }>;

function responsesIn(events: Frame[]): ToolResponse[] {
  return events.filter((event) => event.type === 'tool.response');
}

function responseIn(events: Frame[]): ToolResponse | undefined {
  return responsesIn(events)[0];
}

function requiredIn(events: Frame[]): { thread_id: string; tool_call_id: string | undefined } {
  const asked = events.find((event) => event.type === 'tool.approval_required');
  if (!asked) throw new Error('no approval is required');
  return { thread_id: asked.thread_id, tool_call_id: asked.tool_calls[0]?.id };
}

function allow(events: Frame[]): object {
  return { type: 'user.tool_approval', ...requiredIn(events), approval: { status: 'allow' } };
}

function deny(events: Frame[], reason: string): object {
  return { type: 'user.tool_approval', ...requiredIn(events), approval: { status: 'deny', reason } };
}
