import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, test } from 'vitest';
import type { WireSpan } from '../../../src/api/sessions/wire/timeline.ts';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import type { Frame } from '../../support/api-client.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { answersTo, cell, cellTurn, responsesIn } from '../../support/code-turns.ts';
import { eventually } from '../../support/eventually.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { GATE } from '../../support/gated-cells.ts';
import { TestMcpServer, type TestTool } from '../../support/mcp-server.ts';
import { say } from '../../support/scripted-model.ts';
import type { Chat, TestServer } from '../../support/test-server.ts';

/** Calls of code that its kernel host runs itself: those that need no decision, of tools that may run again. */

let server: TestServer;
let lab: TestMcpServer;
/** The same tools; it keeps state for each connection. */
let stateful: TestMcpServer;
/** Called when the tool `look` is, by its argument. */
const looks = new Map<string, (signal: AbortSignal) => Promise<unknown>>();
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  const inputSchema = { type: 'object' as const, properties: { of: { type: 'string' } }, required: ['of'] };
  const reads = { inputSchema, annotations: { readOnlyHint: true } };
  const tools: TestTool[] = [
    { name: 'note', ...reads, handler: ({ of }) => `note of ${String(of)}` },
    { name: 'slow_note', ...reads, handler: ({ of }) => sleep(100, `note of ${String(of)}`) },
    {
      name: 'look',
      ...reads,
      handler: async ({ of }, { signal }) => {
        await looks.get(String(of))?.(signal);
        return `looked at ${String(of)}`;
      },
    },
    {
      name: 'add',
      inputSchema,
      annotations: { readOnlyHint: false, destructiveHint: false },
      handler: ({ of }) => `added ${String(of)}`,
    },
  ];
  lab = await TestMcpServer.start({ tools });
  stateful = await TestMcpServer.start({ tools, protocol: '2025-11-25' });
  server = await startCodeServer();
});
afterAll(async () => {
  await server.stop();
  await lab.stop();
  await stateful.stop();
});

/** An agent whose code may call the tools of the server. */
function agent(more: object = {}, { asked = [] as string[], url = lab.url } = {}): Partial<AgentSpec> {
  const tools = { allowed_callers: ['code' as const], require_approval_for_tools: asked };
  return {
    code_actions: { approvals: 'allow', ...more },
    mcp_servers: [{ type: 'inline', name: 'lab', url, ...tools }],
  };
}

const isOfCode = (threadId: string): boolean => threadId.startsWith('code_');

/** The requests of a server whose argument begins so. */
function requestsOf({ calls }: TestMcpServer, prefix: string): string[] {
  return calls.flatMap(({ tool, arguments: { of } }) => (String(of).startsWith(prefix) ? `${tool} ${String(of)}` : []));
}

/** The calls of these requests: a slow machine takes longer for one than its piece, and the turn repeats it. */
function callsOf(one: TestMcpServer, prefix: string): string[] {
  return [...new Set(requestsOf(one, prefix))];
}

/** The spans of the last turn of a session. */
async function spansOf(chat: Chat): Promise<WireSpan[]> {
  const turns = await server.api.list<{ id: string }>(`${chat.path}/turns`, 25);
  return server.api.list<WireSpan>(`${chat.path}/turns/${turns[0]?.id}/timeline`);
}

const secondsOf = ({ started_at: start, ended_at: end }: WireSpan) =>
  (Date.parse(end ?? '') - Date.parse(start ?? '')) / 1000;

const IMPORTS = 'from mcptools.lab import add, look, note, slow_note\n';

/** Calls a tool with what an expression gives. */
const CALL = (tool: string, of: string) => `${tool}.run(${tool}.Params(of=${of}))`;

/** The calls of a turn's code that have no results. */
async function openIn(chat: Chat, turnId: string): Promise<string[]> {
  const events = await server.api.list<Frame>(`${chat.path}/turns/${turnId}/events`);
  const ended = new Set(responsesIn(events, isOfCode).map(({ tool_call_id: id }) => id));
  return events.flatMap((event) =>
    event.type === 'model.message' && isOfCode(event.thread_id)
      ? event.tool_calls.flatMap(({ id }) => (ended.has(id) ? [] : id))
      : [],
  );
}

test.concurrent('200 calls of a read-only tool in a loop are in the log, in few pieces', async ({ expect }) => {
  const chat = await server.chat({ spec: agent() });
  const numbers = Array.from({ length: 200 }, (_, n) => n);
  const code = `${IMPORTS}got = [${CALL('note', 'f"a-{n}"')} for n in range(200)]\nprint(got == [f"note of a-{n}" for n in range(200)])`;
  const events = await cellTurn(chat, [code]);
  const execution = { exit: 'ok', tool_calls: 200 };
  expect(responsesIn(events)).toMatchObject([{ outcome: 'succeeded', content: 'True', execution }]);
  const responses = responsesIn(events, isOfCode);
  expect(responses.map(({ content }) => content)).toEqual(numbers.map((n) => `note of a-${n}`));
  expect(callsOf(lab, 'a-')).toEqual(numbers.map((n) => `note a-${n}`));
  const operations = lab.calls
    .filter(({ arguments: { of } }) => String(of).startsWith('a-'))
    .map(({ meta }) => /turn_\w+\/code_\w+\/call_\d+/.exec(JSON.stringify(meta))?.[0]);
  expect([...new Set(operations)].map((one) => one?.replace(/.*_/, ''))).toEqual(numbers.map((n) => `${n + 1}`));
  const spans = await spansOf(chat);
  const ofCalls = spans.filter(({ kind, thread_id: thread }) => kind === 'tool_call' && isOfCode(thread ?? ''));
  expect(ofCalls).toHaveLength(200);
  // A piece has at most 50 calls. On a slow machine it ends after 4 s, or with a call that the turn runs.
  const pieces = spans.filter((span) => span.kind === 'run_code' && secondsOf(span) < 3.9);
  const left = ofCalls.filter(({ attempt }) => attempt !== undefined);
  expect(pieces.length - left.length).toBeLessThan(20);
  expect(ofCalls[0]).toMatchObject({
    tool: 'note',
    server: 'lab',
    outcome: 'succeeded',
    started_at: expect.any(String),
  });
});

test.concurrent('read-only calls between those that ask keep their place', async ({ expect }) => {
  const chat = await server.chat({ spec: agent({}, { asked: ['add'] }) });
  const loop = `for n in range(3):\n  print(${CALL('note', 'f"b-{n}"')})\n  print(${CALL('add', 'f"b-{n}"')})\nprint(${CALL('note', '"b-3"')})`;
  let events = await cellTurn(chat, [IMPORTS + loop]);
  const contents = responsesIn(events, isOfCode).map(({ content }) => content);
  for (let n = 0; n < 3; n++) {
    expect(callsOf(lab, 'b-')).toHaveLength(2 * n + 1);
    events = await chat.turn(answersTo(events)).done;
    contents.push(...responsesIn(events, isOfCode).map(({ content }) => content));
  }
  const expected = [0, 1, 2].flatMap((n) => [`note of b-${n}`, `added b-${n}`]);
  expect(contents).toEqual([...expected, 'note of b-3']);
  expect(responsesIn(events)).toMatchObject([
    { outcome: 'succeeded', content: [...expected, 'note of b-3'].join('\n') },
  ]);
  expect(callsOf(lab, 'b-')).toEqual(['note b-0', 'add b-0', 'note b-1', 'add b-1', 'note b-2', 'add b-2', 'note b-3']);
});

test.concurrent('a rule that is made while the code runs holds for its next call', async ({ expect }) => {
  const chat = await server.chat({ spec: agent() });
  looks.set('c-1', async () => {
    const rule = { effect: 'deny', action: 'tool', tool: 'lab/note' };
    const made = await server.api.send('POST', `${chat.path}/permissions`, rule);
    expect(made.status).toBeLessThan(300);
  });
  const code = `print(${CALL('note', '"c-0"')})\n${CALL('look', '"c-1"')}\n${CALL('note', '"c-2"')}`;
  const events = await cellTurn(chat, [IMPORTS + code]);
  expect(callsOf(lab, 'c-')).toEqual(['note c-0', 'look c-1']);
  expect(responsesIn(events, isOfCode).map(({ outcome }) => outcome)).toEqual(['succeeded', 'succeeded', 'denied']);
  expect(responsesIn(events)).toMatchObject([{ outcome: 'failed', execution: { exit: 'denied' } }]);
});

test.concurrent('a server that keeps state for a connection gets the calls of code on that of the worker', async ({
  expect,
}) => {
  const chat = await server.chat({ spec: agent({}, { url: stateful.url }) });
  const events = await cellTurn(chat, [`${IMPORTS}print(${CALL('add', '"d"')}, ${CALL('note', '"d"')})`]);
  expect(responsesIn(events)).toMatchObject([{ outcome: 'succeeded', content: 'added d note of d' }]);
  expect(callsOf(stateful, 'd')).toEqual(['add d', 'note d']);
  const sessions = stateful.calls.map(({ headers }) => headers['mcp-session-id']);
  expect(sessions).toEqual([expect.any(String), sessions[0]]);
});

test.concurrent('a turn whose budget of time is used up begins no more calls of its code', async ({ expect }) => {
  const budget = { seconds: 6 };
  const chat = await server.chat({ spec: { ...agent(), config: { pause: 'wait', budget } } });
  // A piece ends 4 s after its first call. This one is still going on when the budget is used up, however slow the
  // machine; between two pieces no call would be open.
  chat.script(cell(`${IMPORTS}import time\ntime.sleep(3)\nn = 0\nwhile n := n + 1: ${CALL('slow_note', 'f"e-{n}"')}`));
  const running = chat.turn('go');
  expect(await running.type('turn.paused')).toMatchObject({ reason: 'budget' });
  await server.api.send('POST', `${chat.path}/cancel`, {});
  const outcomes = responsesIn(await running.done, isOfCode).map(({ outcome }) => outcome);
  // The call with which the piece ended was not executed, unless the piece has waited for it, and not long enough.
  const last = outcomes.pop();
  expect(['cancelled', 'unknown_outcome']).toContain(last);
  const called = callsOf(lab, 'e-');
  const ended = last === 'cancelled' ? called : called.slice(0, outcomes.length);
  expect(outcomes).toEqual(ended.map(() => 'succeeded'));
});

test.concurrent('a turn that is paused begins no more calls of its code, until it is resumed', async ({ expect }) => {
  const chat = await server.chat({ spec: { ...agent(), config: { pause: 'wait' } } });
  let paused: Promise<{ status: number }> | undefined;
  // It returns when the pause was requested, so that calls remain.
  looks.set('f', () => (paused ??= server.api.send('POST', `${chat.path}/pause`, {})));
  const all = ['look f', ...Array.from({ length: 60 }, (_, n) => `slow_note f-${n}`)];
  chat.script(
    // More calls than one piece has: its end brings them to the turn at the latest.
    cell(`${IMPORTS}${CALL('look', '"f"')}\nfor n in range(60): ${CALL('slow_note', 'f"f-{n}"')}`),
    say('done'),
  );
  const running = chat.turn('go');
  const turnId = await running.turnId();
  // Neither a piece nor a call is under way.
  await eventually(async () => {
    const pending = (await spansOf(chat)).flatMap(({ kind, pending: isPending }) => (isPending ? kind : []));
    expect(pending.toSorted()).toEqual(['pause', 'thread']);
  });
  expect(await paused).toMatchObject({ status: 200 });
  const open = await openIn(chat, turnId);
  expect(open).toHaveLength(1);
  const index = all.findIndex((_, n) => open[0] === `call_${n + 1}`);
  expect(index).toBeGreaterThanOrEqual(0);
  // The open call was not sent, unless its piece has waited for it, and not long enough.
  const before = callsOf(lab, 'f');
  expect([all.slice(0, index), all.slice(0, index + 1)]).toContainEqual(before);
  const sent = requestsOf(lab, 'f').length;
  await server.api.send('POST', `${chat.path}/resume`, {});
  const responses = responsesIn(await running.done, isOfCode);
  expect(responses.map(({ outcome }) => outcome)).toEqual(Array.from({ length: 61 }, () => 'succeeded'));
  expect(requestsOf(lab, 'f').slice(sent)).toContain(all[index]);
  expect(callsOf(lab, 'f')).toEqual(all);
});

test.concurrent('a turn that is cancelled cancels the call that its host runs, and output is kept', async ({
  expect,
}) => {
  const chat = await server.chat({ spec: agent() });
  const [begun, aborted] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  looks.set('g', async (signal) => {
    const cancelled = new Promise((resolve) => signal.addEventListener('abort', resolve));
    begun.resolve();
    await cancelled;
    aborted.resolve();
  });
  chat.script(cell(`x = 1\nprint("begun")\n${IMPORTS}${CALL('note', '"g-0"')}\n${CALL('look', '"g"')}`));
  const running = chat.turn('go');
  await begun.promise;
  await server.api.send('POST', `${chat.path}/cancel`, {});
  const events = await running.done;
  await aborted.promise;
  expect(responsesIn(events, isOfCode).map(({ outcome }) => outcome)).toEqual(['succeeded', 'cancelled']);
  expect(responsesIn(events)).toMatchObject([{ outcome: 'cancelled', execution: { exit: 'interrupted' } }]);
  expect(responsesIn(events)[0]?.content).toMatch(/^begun\n/);
  const [next] = responsesIn(await cellTurn(chat, ['print(x)']));
  expect(next).toMatchObject({ outcome: 'succeeded', content: '1', execution: { generation: 1 } });
});

test.concurrent('a call that takes longer than a piece is left to the turn', async ({ expect }) => {
  const chat = await server.chat({ spec: agent() });
  const begun: number[] = [];
  looks.set('h', async (signal) => {
    begun.push(Date.now());
    // The first request ends with the piece.
    if (begun.length === 1) await new Promise((resolve) => signal.addEventListener('abort', resolve));
  });
  const events = await cellTurn(chat, [`${IMPORTS}print(${CALL('look', '"h"')})`]);
  expect(responsesIn(events)).toMatchObject([{ outcome: 'succeeded', content: 'looked at h' }]);
  expect(responsesIn(events, isOfCode)).toMatchObject([{ outcome: 'succeeded', content: 'looked at h' }]);
  expect(requestsOf(lab, 'h')).toHaveLength(2);
});

test.concurrent('the log has the calls of code that runs on, which is interrupted as any other', async ({ expect }) => {
  const chat = await server.chat({ spec: agent() });
  chat.script(cell(`x = 1\nprint("begun")\n${IMPORTS}${CALL('note', '"i"')}\n${GATE('never')}`), say('done'));
  const running = chat.turn('go');
  await running.next((event) => event.type === 'tool.response' && isOfCode(event.thread_id));
  const { body } = await server.api.send('POST', `${chat.path}/sandbox/interrupt`, {});
  expect(body).toEqual({ data: { interrupted: true } });
  const events = await running.done;
  expect(responsesIn(events)).toMatchObject([{ outcome: 'failed', execution: { exit: 'interrupted', tool_calls: 1 } }]);
  expect(responsesIn(events)[0]?.content).toMatch(/^begun\n[^]*KeyboardInterrupt/);
  const [next] = responsesIn(await cellTurn(chat, ['print(x)']));
  expect(next).toMatchObject({ outcome: 'succeeded', content: '1', execution: { generation: 1 } });
});

test.concurrent('calls whose records do not fit into one piece are in the next one', async ({ expect }) => {
  const chat = await server.chat({ spec: agent() });
  const code = `import asyncio
${IMPORTS}for n in range(3):
  got = await asyncio.gather(*(note.run_async(note.Params(of=f"j-{n}-{i}-" + "x" * 950)) for i in range(32)))
  print(len(set(got)))`;
  const events = await cellTurn(chat, [code]);
  expect(responsesIn(events)).toMatchObject([{ outcome: 'succeeded', content: '32\n32\n32' }]);
  // Those of a piece run in parallel, and are in the log in the order of their ends.
  const results = responsesIn(events, isOfCode).map(({ outcome, tool_call_id: id }) => `${id} ${outcome}`);
  const calls = Array.from({ length: 96 }, (_, n) => `call_${n + 1} succeeded`);
  expect(results.toSorted()).toEqual(calls.toSorted());
});
