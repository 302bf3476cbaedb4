import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { turnWorkflowId } from '../../../src/core/temporal-names.ts';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import { newId } from '../../../src/engine/new-id.ts';
import type { Frame } from '../../support/api-client.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { answersTo, askedIn, cell, responsesIn } from '../../support/code-turns.ts';
import { eventually } from '../../support/eventually.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { held, say, use, type Script } from '../../support/scripted-model.ts';
import { TemporalClient } from '../../support/temporal-client.ts';
import { onTestServer, type Chat, type TestServer } from '../../support/test-server.ts';

/** Agents that act in code give tasks to sub-agents, each with a kernel of its own. */

let server: TestServer;
let temporal: TemporalClient;
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);
beforeAll(async () => {
  const tools = [{ name: 'wipe', annotations: { destructiveHint: true }, handler: () => 'wiped' }];
  server = await startCodeServer({}, { mcp: { tools } });
});
beforeAll(async () => {
  const [address, namespace] = [inject('temporalAddress'), inject('temporalNamespace')];
  temporal = await TemporalClient.connect({ address, namespace });
});
afterAll(async () => {
  await temporal.close();
  await server.stop();
});

type Actions = NonNullable<AgentSpec['code_actions']>;

const agent = (actions: Actions, more: Partial<AgentSpec> = {}) =>
  server.chat({ spec: { code_actions: actions, ...more } });

const FREE: Actions = { approvals: 'allow' };

/** The server of the test, for code. */
const FOR_CODE = { ...onTestServer.mcp_servers[0]!, allowed_callers: ['code' as const] };
const WIPE = 'from mcptools.test.wipe import run, Params\nprint(run(Params()))';

const modelOf = (chat: Chat, name: string): string => `${chat.agent}-${name}`;

/** The model gives tasks to sub-agents, whose models have these scripts. */
function start(chat: Chat, tasks: Record<string, Script[]>, more: object = {}): Script {
  for (const [name, scripts] of Object.entries(tasks)) server.model.script(modelOf(chat, name), ...scripts);
  return use(
    ...Object.keys(tasks).map((name) => ({
      name: 'create_sub_agent',
      id: `call_${name}`,
      args: { name, input: `task of ${name}`, model: modelOf(chat, name), ...more },
    })),
  );
}

/** The threads of the tasks, by their names, in the order in which they began. */
const threadsIn = (events: Frame[]): Record<string, string> =>
  Object.fromEntries(
    events.flatMap((event) =>
      event.type === 'thread.created' && event.kind !== 'code' ? [[event.title, event.thread_id]] : [],
    ),
  );

/** The results in the last request to the model. */
const resultsOf = (chat: Chat): unknown[] =>
  (chat.requests().at(-1)?.messages ?? []).filter(({ role }) => role === 'tool').map(({ content }) => content);

const toolsOf = (model: string): string[] =>
  (server.model.requestsTo(model)[0]?.tools ?? []).map((tool) => tool.function.name);

const kernelsOf = async ({ path }: Chat): Promise<object[]> => (await server.api.get(`${path}/sandbox`)).data.kernels;

const outputsIn = (events: Frame[], threadId: string | undefined): string[] =>
  responsesIn(events, (id) => id === threadId).map(({ content }) => content);

test.concurrent('two tasks have threads and kernels of their own, and their last texts are the results', async () => {
  const chat = await agent(FREE);
  const scripts = (name: string) => [cell(`x = '${name}'`), cell('print(x)'), say(`${name} is done`)];
  chat.script(
    cell('x = "root"'),
    start(chat, { a: scripts('a'), b: scripts('b') }),
    cell('print(x)'),
    say('all is done'),
  );
  const events = await chat.turn('go').done;
  const { a, b } = threadsIn(events);
  expect([outputsIn(events, a).at(-1), outputsIn(events, b).at(-1)]).toEqual(['a', 'b']);
  expect(outputsIn(events, 'main').at(-1)).toBe('root');
  expect(resultsOf(chat).slice(1, 3)).toEqual(['a is done', 'b is done']);
  // Their kernels end with them.
  await eventually(async () => expect(await kernelsOf(chat)).toMatchObject([{ thread_id: 'main' }]));
  expect(toolsOf(chat.agent)).toContain('create_sub_agent');
  expect(toolsOf(modelOf(chat, 'a'))).toContain('ipython');
  expect(toolsOf(modelOf(chat, 'a'))).not.toContain('create_sub_agent');
});

test.concurrent.each<[string, (chat: Chat, turnId: string) => Promise<unknown>]>([
  ['cancelled', ({ path }) => server.api.send('POST', `${path}/cancel`, {})],
  ['ended by an operator', (_, turnId) => temporal.terminate(turnWorkflowId(turnId))],
])('kernels of tasks end with a turn that is %s', async (_how, end) => {
  const chat = await agent(FREE);
  chat.script(cell('x = "root"'), start(chat, { a: [cell('import time\ntime.sleep(600)')] }));
  const turn = chat.turn('go');
  await eventually(async () => expect(await kernelsOf(chat)).toMatchObject([{ status: 'ready' }, { status: 'busy' }]));
  await end(chat, await turn.turnId());
  expect((await turn.end()).status).not.toBe('done');
  await eventually(async () => expect(await kernelsOf(chat)).toMatchObject([{ thread_id: 'main' }]));
});

test.concurrent('a task starts no sub-agent, and a call that cannot start one is not asked about', async () => {
  const chat = await agent({ approvals: { task: 'ask' } });
  const wrong = use({ name: 'create_sub_agent', args: { name: 'a', input: 'x', max_turns: 0 } });
  chat.script(wrong, start(chat, { b: [start(chat, { c: [] }), say('alone')] }));
  const asked = await chat.turn('go').done;
  expect(askedIn(asked)).toEqual([{ thread_id: 'main', tool_call_id: 'call_b' }]);
  expect(outputsIn(asked, 'main')).toEqual([expect.stringContaining('max_turns')]);
  chat.script(say('done'));
  const events = await chat.turn(answersTo(asked)).done;
  expect(outputsIn(events, threadsIn(events)['b'])).toEqual([expect.stringContaining('starts no others')]);
  expect(resultsOf(chat).at(-1)).toBe('alone');
});

test.concurrent('a call asks as the action task, and the calls inside with the thread of the task', async () => {
  const chat = await agent({}, { mcp_servers: [FOR_CODE] });
  chat.script(start(chat, { a: [cell(WIPE), say('a is done')] }));
  const asked = await chat.turn('go').done;
  const args = { name: 'a', input: 'task of a', model: modelOf(chat, 'a') };
  expect(asked.find(({ type }) => type === 'tool.approval_required')).toMatchObject({
    thread_id: 'main',
    tool_calls: [
      {
        id: 'call_a',
        action: {
          type: 'task',
          display: `create_sub_agent ${JSON.stringify(args)}`,
          suggested_rule: { action: 'task' },
        },
      },
    ],
  });
  expect(threadsIn(asked)).toEqual({});
  // The rule counts from now on.
  const remembering = { status: 'allow', remember: { scope: 'session' } };
  const begun = await chat.turn(answersTo(asked, remembering)).done;
  const { a } = threadsIn(begun);
  expect(askedIn(begun)).toMatchObject([{ thread_id: a }]);
  const running = await chat.turn(answersTo(begun)).done;
  const created = running.find((event) => event.type === 'thread.created');
  expect(created).toMatchObject({ kind: 'code', parent: { thread_id: a } });
  expect(running.find(({ type }) => type === 'tool.approval_required')).toMatchObject({
    thread_id: expect.stringMatching(/^code_/),
    tool_calls: [{ action: { type: 'tool', parent: { thread_id: a } } }],
  });
  chat.script(start(chat, { b: [say('b is done')] }), say('done'));
  const events = await chat.turn(answersTo(running)).done;
  expect(outputsIn(events, a)).toEqual(['wiped']);
  expect(resultsOf(chat)).toEqual(['a is done', 'b is done']);
});

test.concurrent('a call that is denied starts nothing', async () => {
  const chat = await agent({});
  chat.script(start(chat, { a: [] }));
  const asked = await chat.turn('go').done;
  chat.script(say('done'));
  const events = await chat.turn(answersTo(asked, { status: 'deny', reason: 'too dear' })).done;
  expect(threadsIn(events)).toEqual({});
  expect(resultsOf(chat)).toEqual(['The user denied this tool call. Reason: too dear']);
});

test.concurrent('a policy names the tool, and an edit of the task is what the sub-agent gets', async () => {
  const chat = await agent(FREE, {
    config: { decision_policies: [{ match: { tool: 'create_sub_agent' }, decision: 'ask' }] },
  });
  chat.script(start(chat, { a: [say('a is done')] }));
  const asked = await chat.turn('go').done;
  chat.script(say('done'));
  const edited = { name: 'a', input: 'another task', model: modelOf(chat, 'a') };
  const events = await chat.turn(answersTo(asked, { status: 'allow', arguments: edited })).done;
  expect(events.find(({ type }) => type === 'thread.created')).toMatchObject({ agent_info: { input: 'another task' } });
});

test.concurrent('after its model calls with their tools a task ends with what it has said', async () => {
  const chat = await agent({ ...FREE, sub_tasks: { max_turns: 2 } });
  const calling: Script = (call) =>
    call.text('I have begun.').toolCall('ipython', { code: 'print("ran")' }).finish('tool_calls');
  chat.script(start(chat, { a: [calling, cell('print(2)')], b: [say('b')] }), say('done'));
  const events = await chat.turn('go').done;
  const { a } = threadsIn(events);
  expect(outputsIn(events, a)).toEqual(['ran', '2']);
  expect(events.find((event) => event.type === 'thread.done' && event.thread_id === a)).toMatchObject({
    state: { status: 'done', output: { content: 'I have begun.' } },
  });
  const note = '[everturn] The sub-agent has not finished: it reached its limit of 2 model calls.';
  expect(resultsOf(chat)).toEqual([`I have begun.\n${note}`, 'b']);
});

test.concurrent('a call may lower the limit of its task', async () => {
  const chat = await agent({ ...FREE, sub_tasks: { max_turns: 2 } });
  chat.script(start(chat, { a: [cell('print(1)')] }, { max_turns: 1 }), say('done'));
  const events = await chat.turn('go').done;
  expect(outputsIn(events, threadsIn(events)['a'])).toEqual(['1']);
  expect(resultsOf(chat)).toEqual([expect.stringContaining('its limit of 1 model calls')]);
});

test.concurrent('more tasks than may run at once wait, and one fails alone', async () => {
  const chat = await agent({ ...FREE, sub_tasks: { max_concurrent: 1 } });
  const gate = held(
    (call) => call.text('a '),
    (call) => call.text('is done').finish(),
  );
  const failing: Script = (call) => call.fail(400, 'broken');
  chat.script(start(chat, { a: [gate.script], b: [failing], c: [say('c is done')] }), say('done'));
  const turn = chat.turn('go');
  await gate.reached;
  await turn.says('a ');
  expect(server.model.requestsTo(modelOf(chat, 'b'))).toHaveLength(0);
  gate.release();
  const events = await turn.done;
  const order = events.flatMap((event) =>
    event.type === 'thread.created' || event.type === 'thread.done' ? `${event.type} ${event.title}` : [],
  );
  const both = (name: string) => [`thread.created ${name}`, `thread.done ${name}`];
  expect(order).toEqual([...both('a'), ...both('b'), ...both('c')]);
  expect(resultsOf(chat)).toEqual(['a is done', expect.stringContaining('The sub-agent failed'), 'c is done']);
});

test.concurrent('a task that waits for a person keeps its place, also over turns; the others end with the turn', async () => {
  const chat = await agent({ approvals: { task: 'allow' }, sub_tasks: { max_concurrent: 1 } });
  chat.script(start(chat, { a: [cell('print(1)'), say('a is done')], b: [cell('print(2)')], c: [] }));
  const asked = await chat.turn('go').done;
  const { a, b } = threadsIn(asked);
  expect([b, askedIn(asked)]).toMatchObject([undefined, [{ thread_id: a }]]);
  const next = await chat.turn(answersTo(asked)).done;
  expect(askedIn(next)).toMatchObject([{ thread_id: threadsIn(next)['b'] }]);
  const gate = held(
    (call) => call.text('working'),
    (call) => call.finish(),
  );
  server.model.script(modelOf(chat, 'b'), gate.script);
  const last = chat.turn(answersTo(next));
  await last.says('working');
  await server.api.send('POST', `${chat.path}/cancel`, {});
  const events = await last.done;
  gate.release();
  expect(events.at(-1)).toMatchObject({ state: { status: 'cancelled', phase: 'tool' } });
  const ended = responsesIn(events).map((one) => `${one.tool_call_id} ${one.outcome}`);
  expect(ended.toSorted()).toEqual(['call_b cancelled', 'call_c cancelled']);
  expect(Object.keys(threadsIn(events))).toEqual([]);
});

test.concurrent('a denial inside ends the task alone, if denials end the turns of the agent', async () => {
  const chat = await agent({ approvals: { task: 'allow' }, on_deny: 'end' });
  const calling: Script = (call) => call.text('I try.').toolCall('ipython', { code: 'print(1)' }).finish('tool_calls');
  chat.script(start(chat, { a: [calling], b: [say('b is done')] }));
  const asked = await chat.turn('go').done;
  chat.script(say('done'));
  const events = await chat.turn(answersTo(asked, { status: 'deny' })).done;
  expect(server.model.requestsTo(modelOf(chat, 'a'))).toHaveLength(1);
  expect(events.find(({ type }) => type === 'thread.done')).toMatchObject({
    state: { status: 'done', output: { content: 'I try.' } },
  });
  expect(resultsOf(chat)).toEqual([
    'I try.\n[everturn] The sub-agent has not finished: a call of it was denied.',
    'b is done',
  ]);
  expect(events.at(-1)).toMatchObject({ state: { status: 'done', output: { content: 'done' } } });
});

test.concurrent('a denial in the code of a task ends it once the code has cleaned up', async () => {
  const chat = await agent({ ...FREE, on_deny: 'end' }, { mcp_servers: [FOR_CODE] });
  const code = `try:\n  ${WIPE.replace('\n', '\n  ')}\nfinally:\n  print("clean")`;
  const calling: Script = (call) => call.text('I try.').toolCall('ipython', { code }).finish('tool_calls');
  chat.script(start(chat, { a: [calling] }));
  const asked = await chat.turn('go').done;
  chat.script(say('done'));
  const events = await chat.turn(answersTo(asked, { status: 'deny' })).done;
  expect(outputsIn(events, threadsIn(asked)['a'])).toEqual([expect.stringMatching(/^clean\n/)]);
  expect(server.model.requestsTo(modelOf(chat, 'a'))).toHaveLength(1);
  expect(resultsOf(chat)).toEqual([expect.stringMatching(/^I try\.\n.*denied\.$/)]);
  expect(events.at(-1)).toMatchObject({ state: { status: 'done', output: { content: 'done' } } });
});

test.concurrent('a rule that denies tasks is told to the model', async () => {
  const chat = await agent({ ...FREE, permissions: [{ effect: 'deny', action: 'task' }] });
  chat.script(start(chat, { [newId('req')]: [] }), say('done'));
  const events = await chat.turn('go').done;
  expect([threadsIn(events), resultsOf(chat)]).toEqual([{}, [expect.stringContaining('does not allow it')]]);
});
