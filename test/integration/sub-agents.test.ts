import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import type { Frame } from '../support/api-client.ts';
import { byThread, folded } from '../support/api-client.ts';
import { held, say, use, type Script } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: ({ at }) => `saw ${String(at)}` },
        { name: 'pay', annotations: { destructiveHint: true }, handler: ({ to }) => `paid ${String(to)}` },
      ],
    },
  });
});
afterAll(() => server.stop());

interface Task {
  name: string;
  input?: string;
  agent?: string;
  /** The requests of the sub-agent go to a model of its own. */
  scripts?: Script[];
}

/** The model of a sub-agent. */
const modelOf = (chat: Chat, name: string): string => `${chat.agent}-${name}`;

const requestsOf = (chat: Chat, name: string) => server.model.requestsTo(modelOf(chat, name));

/** Starts sub-agents, and scripts their models. */
function start(chat: Chat, ...tasks: Task[]): Script {
  for (const { name, scripts = [] } of tasks) server.model.script(modelOf(chat, name), ...scripts);
  return use(
    ...tasks.map(({ name, input = `task of ${name}`, agent }) => ({
      name: 'create_sub_agent',
      id: `call_${name}`,
      args: { name, input, ...(agent === undefined ? { model: modelOf(chat, name) } : { agent }) },
    })),
  );
}

async function historyOf(turnId: string) {
  const connection = await Connection.connect({ address: inject('temporalAddress') });
  onTestFinished(() => connection.close());
  const client = new Client({ connection, namespace: inject('temporalNamespace') });
  return (await client.workflow.getHandle(turnWorkflowId(turnId)).fetchHistory()).events ?? [];
}

/** A client tool, which a sub-agent's client answers too. */
const door = { name: 'open_door', input_schema: { type: 'object' } };

const allow = (thread: string, id: string) => ({
  type: 'user.tool_approval',
  thread_id: thread,
  tool_call_id: id,
  approval: { status: 'allow' },
});
const respond = (thread: string, id: string, content: string) => ({
  type: 'user.tool_response',
  thread_id: thread,
  tool_call_id: id,
  content,
});

/** The threads of the sub-agents, by their names. */
function threadsOf(frames: Frame[]): Record<string, string> {
  return Object.fromEntries(
    frames.flatMap((frame) => (frame.type === 'thread.created' ? [[frame.title, frame.thread_id]] : [])),
  );
}

/** How the sub-agents ended, by their names: the answer, or the error. */
function endsOf(frames: Frame[]): Record<string, string> {
  return Object.fromEntries(
    frames.flatMap((frame) => {
      if (frame.type !== 'thread.done') return [];
      return [
        [frame.title, frame.state.status === 'done' ? frame.state.output.content : `error: ${frame.state.error}`],
      ];
    }),
  );
}

/** The results of tools in a request to the root agent's model. */
function resultsIn(chat: Chat, request: number): unknown[] {
  const messages = chat.requests().at(request)?.messages ?? [];
  return messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
}

test('sub-agents work in parallel, each with its own conversation, and their answers are the results of the calls', async () => {
  const chat = await server.chat({ spec: { ...onTestServer, instructions: 'Be brief.' } });
  const gates = ['a', 'b', 'c'].map((name) =>
    held(
      (call) => call.text(`${name} says `),
      (call) => call.text('this').finish(),
    ),
  );
  const tasks = ['a', 'b', 'c'].map((name, i) => ({
    name,
    scripts: [use({ name: 'look', args: { at: name }, id: 'same_id' }), gates[i]!.script],
  }));
  chat.script(start(chat, ...tasks), say('All done.'));
  const reader = chat.turn('delegate');
  // All three are in the middle of their last messages at once.
  await Promise.all(gates.map(({ reached }) => reached));
  for (const name of ['a', 'b', 'c']) await reader.says(`${name} says `);
  for (const gate of gates.toReversed()) gate.release();
  const frames = await reader.done;
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'All done.', thread_id: 'main' } });
  expect(endsOf(frames)).toEqual({ a: 'a says this', b: 'b says this', c: 'c says this' });

  const whole = folded(frames);
  const threads = threadsOf(frames);
  expect(new Set(Object.values(threads)).size).toBe(3);
  const own = byThread(whole)[threads['b'] ?? ''];
  expect(own?.map(({ type }) => type)).toEqual([
    'thread.created',
    'model.message',
    'tool.response',
    'model.message',
    'thread.done',
  ]);
  expect(own?.[0]).toMatchObject({
    title: 'b',
    parent: { thread_id: 'main', tool_call_id: 'call_b' },
    agent_info: { type: 'dynamic', name: 'b', input: 'task of b', model: modelOf(chat, 'b') },
  });
  expect(own?.at(-1)).toMatchObject({ status: 'done', output: own?.[3], state: { output: own?.[3] } });
  // The client sees the answer in the thread, and the model as the result of its call.
  const responses = frames.filter((frame) => frame.type === 'tool.response' && frame.thread_id === 'main');
  expect(responses).toHaveLength(3);
  for (const response of responses) expect(response).toMatchObject({ content: '', outcome: 'succeeded' });
  expect(resultsIn(chat, 1)).toEqual(['a says this', 'b says this', 'c says this']);

  const [first, second] = requestsOf(chat, 'b');
  expect(first?.messages).toEqual([
    { role: 'system', content: expect.stringMatching(/^Be brief\.\n\nYou are the sub-agent "b"/) },
    { role: 'user', content: 'task of b' },
  ]);
  expect(second?.messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'tool']);
  // Equal ids of calls in several threads are different operations.
  const operations = server.mcp.calls.map(({ meta }) => meta['io.everturn/operation-id']);
  expect(new Set(operations).size).toBe(3);

  const turnId = await reader.turnId();
  const replay = await server.api.subscribe(chat.sessionId, turnId).done;
  expect(byThread(folded(replay))).toEqual(byThread(whole));
  const listed = await server.api.list<{ id: string }>(`${chat.path}/turns/${turnId}/events`, 7);
  expect(listed).toEqual(folded(replay).slice(1, -1));
  // Eight model calls with 10 tokens of input each.
  expect(await reader.end()).toMatchObject({ metrics: { total_input_tokens: 80 } });
});

test('sub-agents start sub-agents, up to three levels deep', async () => {
  const chat = await server.chat();
  // At the third level the tool is not offered, and a call of it nevertheless starts nothing.
  const third = { name: 'third', scripts: [start(chat, { name: 'fourth' }), say('from the third')] };
  const second = { name: 'second', scripts: [start(chat, third), say('from the second')] };
  chat.script(start(chat, { name: 'first', scripts: [start(chat, second), say('from the first')] }), say('Over.'));
  const reader = chat.turn('dig');
  const frames = await reader.done;
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Over.' } });
  expect(endsOf(frames)).toEqual({
    third: 'from the third',
    second: 'from the second',
    first: 'from the first',
  });
  const threads = threadsOf(frames);
  expect(Object.keys(threads)).toEqual(['first', 'second', 'third']);
  const parents = frames.flatMap((frame) => (frame.type === 'thread.created' ? [frame.parent.thread_id] : []));
  expect(parents).toEqual(['main', threads['first'], threads['second']]);
  const offered = (name: string) => requestsOf(chat, name)[0]?.tools?.map((tool) => tool.function.name);
  expect(offered('second')).toContain('create_sub_agent');
  expect(offered('third')).not.toContain('create_sub_agent');
  const refused = frames.find((frame) => frame.type === 'tool.response' && frame.tool_call_id === 'call_fourth');
  expect(refused).toMatchObject({ outcome: 'failed', content: expect.stringContaining('3 levels deep') });
});

test('pauses of several sub-agents are answered together in a later turn, and each continues once', async () => {
  const chat = await server.chat({ spec: { ...onTestServer, client_tools: [door] } });
  const nested = {
    name: 'nested',
    scripts: [use({ name: 'open_door', id: 'd1' }), say('the door is open')],
  };
  chat.script(
    start(
      chat,
      { name: 'payer', scripts: [use({ name: 'pay', args: { to: 'ann' }, id: 'p1' }), say('ann is paid')] },
      { name: 'outer', scripts: [start(chat, nested), say('nested is done')] },
      { name: 'quick', scripts: [say('done at once')] },
    ),
    say('All done.'),
    say('And now?'),
  );
  const first = chat.turn('go');
  const frames = await first.done;
  const { payer = '', nested: inner = '', outer = '' } = threadsOf(frames);
  const end = await first.end();
  if (end.status !== 'done') throw new Error(end.status);
  expect(end.output).toBeNull();
  expect(end.required_actions.map(({ type, thread_id, tool_calls }) => [type, thread_id, tool_calls[0]?.id])).toEqual([
    ['tool.approval_required', payer, 'p1'],
    ['tool.response_required', inner, 'd1'],
  ]);
  expect(endsOf(frames)).toEqual({ quick: 'done at once' });

  const refusal = async (input: object[]) => {
    const { status, body } = await server.api.send('POST', `${chat.path}/turns`, { input });
    return [status, body.error.code];
  };
  expect(await refusal([{ type: 'user.message', content: 'hello?' }])).toEqual([422, 'actions_pending']);
  expect(await refusal([])).toEqual([422, 'actions_pending']);
  expect(await refusal([allow(payer, 'p1')])).toEqual([422, 'calls_unanswered']);
  expect(await refusal([allow('main', 'p1'), respond(inner, 'd1', 'open')])).toEqual([422, 'call_not_pending']);
  expect(server.mcp.calls.filter(({ tool }) => tool === 'pay')).toEqual([]);

  const before = await first.turnId();
  const second = chat.turn([allow(payer, 'p1'), respond(inner, 'd1', 'it is open')]);
  const resumed = await second.done;
  expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'All done.' } });
  expect(endsOf(resumed)).toEqual({ payer: 'ann is paid', nested: 'the door is open', outer: 'nested is done' });
  // No thread begins again.
  expect(threadsOf(resumed)).toEqual({});
  expect(resultsIn(chat, 1)).toEqual(['ann is paid', 'nested is done', 'done at once']);
  expect(requestsOf(chat, 'nested')[1]?.messages.at(-1)).toMatchObject({ role: 'tool', content: 'it is open' });
  const ran = server.mcp.calls.filter(({ tool }) => tool === 'pay');
  expect(ran.map(({ meta }) => meta['io.everturn/operation-id'])).toEqual([`${before}/${payer}/p1`]);
  expect(byThread(folded(resumed))[outer]?.map(({ type }) => type)).toEqual([
    'tool.response',
    'model.message',
    'thread.done',
  ]);

  // On another branch nothing is pending any more, and the sub-agents do not run again.
  const fork = chat.turn('hello', { previous_turn_id: before });
  expect(await fork.end()).toMatchObject({ status: 'done', output: { content: 'And now?' } });
  expect(resultsIn(chat, 2).slice(0, 2)).toEqual(
    Array.from({ length: 2 }, () => expect.stringContaining('not executed')),
  );
  expect(requestsOf(chat, 'payer')).toHaveLength(2);
});

test('sub-agents that pause in turn after turn keep their conversations', async () => {
  const chat = await server.chat({ spec: { client_tools: [door] } });
  const asks = (id: string) => use({ name: 'open_door', id });
  chat.script(
    start(
      chat,
      { name: 'one', scripts: [asks('x1'), asks('x2'), say('one')] },
      { name: 'two', scripts: [asks('y1'), say('two')] },
    ),
    say('Finally.'),
  );
  const first = chat.turn('go');
  const { one = '', two = '' } = threadsOf(await first.done);
  const second = chat.turn([respond(one, 'x1', 'a'), respond(two, 'y1', 'b')]);
  expect(endsOf(await second.done)).toEqual({ two: 'two' });
  // A restarted session rebuilds what waits from the archive.
  await server.restart();
  const third = server.api.turn(chat.sessionId, [respond(one, 'x2', 'c')]);
  expect(await third.end()).toMatchObject({ status: 'done', output: { content: 'Finally.' } });
  expect(requestsOf(chat, 'one').map(({ messages }) => messages.length)).toEqual([2, 4, 6]);
  expect(resultsIn(chat, 1)).toEqual(['one', 'two']);
});

test('in a turn that waits, each sub-agent continues as soon as its own calls are answered', async () => {
  const chat = await server.chat({ spec: { ...onTestServer, client_tools: [door], config: { pause: 'wait' } } });
  const nested = { name: 'nested', scripts: [use({ name: 'open_door', id: 'd1' }), say('the door is open')] };
  chat.script(
    start(
      chat,
      { name: 'payer', scripts: [use({ name: 'pay', args: { to: 'cem' }, id: 'p1' }), say('cem is paid')] },
      { name: 'outer', scripts: [start(chat, nested), say('nested is done')] },
    ),
    say('All done.'),
  );
  const reader = chat.turn('go');
  await reader.type('turn.paused');
  const { payer = '', nested: inner = '' } = threadsOf(reader.frames);
  const answer = (...input: object[]) => server.api.send('POST', `${chat.path}/actions`, { input });
  expect(await answer(respond(inner, 'd1', 'it is open'))).toMatchObject({
    status: 200,
    body: { data: { accepted: ['d1'], waiting: ['p1'] } },
  });
  await reader.next((frame) => frame.type === 'thread.done' && frame.title === 'outer');
  expect(Object.keys(endsOf(reader.frames)).toSorted()).toEqual(['nested', 'outer']);
  expect(await answer(allow(payer, 'p1'))).toMatchObject({ status: 200 });
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'All done.' }, required_actions: [] });
  expect(endsOf(await reader.done)).toMatchObject({ payer: 'cem is paid' });
  expect(resultsIn(chat, 1)).toEqual(['cem is paid', 'nested is done']);
  const listed = await server.api.list<object>(`${chat.path}/turns/${await reader.turnId()}/events`);
  expect(byThread(folded(await reader.done).slice(1, -1))).toEqual(byThread(listed));
});

test('a sub-agent that fails is a result for its parent, and the others continue', async () => {
  const chat = await server.chat({ spec: { ...onTestServer, config: { iteration_limit: 3 } } });
  const looks = () => use({ name: 'look', args: { at: 'it' } });
  chat.script(
    start(
      chat,
      { name: 'broken', scripts: [(call) => call.fail(400, 'no such thing')] },
      { name: 'endless', scripts: [looks(), looks(), looks(), looks()] },
      { name: 'cut', scripts: [(call) => call.text('half a').finish('length')] },
      { name: 'good', scripts: [say('good')] },
    ),
    say('Noted.'),
  );
  const reader = chat.turn('go');
  const frames = await reader.done;
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Noted.' } });
  expect(endsOf(frames)).toEqual({
    broken: expect.stringContaining('no such thing'),
    endless: 'error: it reached its limit of 3 model calls',
    cut: 'error: its model stopped at its limit of output tokens',
    good: 'good',
  });
  expect(resultsIn(chat, 1)).toEqual([
    expect.stringMatching(/^The sub-agent failed: .*no such thing/),
    'The sub-agent failed: it reached its limit of 3 model calls',
    'The sub-agent failed: its model stopped at its limit of output tokens',
    'good',
  ]);
  expect(requestsOf(chat, 'endless')).toHaveLength(3);
});

test('a cancel ends all sub-agents, and closes what is open in them', async () => {
  const chat = await server.chat({ spec: { ...onTestServer, client_tools: [door] } });
  const writing = held(
    (call) => call.text('I am'),
    () => undefined,
  );
  const look = use({ name: 'look', args: { at: 'it' }, id: 'l1' });
  chat.script(
    start(
      chat,
      { name: 'outer', scripts: [start(chat, { name: 'writing', scripts: [look, writing.script] })] },
      { name: 'asking', scripts: [use({ name: 'open_door', id: 'd1' })] },
    ),
    say('Again.'),
  );
  const reader = chat.turn('go');
  await writing.reached;
  await reader.says('I am');
  await reader.next((frame) => 'tool_calls' in frame && (frame.tool_calls ?? []).some(({ id }) => id === 'd1'));
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect(await reader.end()).toMatchObject({ status: 'cancelled', reason: 'client-cancelled' });
  const frames = await reader.done;
  expect(Object.keys(endsOf(frames)).toSorted()).toEqual(['asking', 'outer', 'writing']);
  for (const end of Object.values(endsOf(frames))) expect(end).toMatch(/^error: .*cancelled/);
  const called = frames.flatMap((frame) =>
    frame.type === 'tool.response' ? [[frame.tool_call_id, frame.outcome]] : [],
  );
  expect(Object.fromEntries(called)).toEqual({
    call_asking: 'cancelled',
    call_outer: 'cancelled',
    call_writing: 'cancelled',
    d1: 'cancelled',
    l1: 'succeeded',
  });
  writing.release();
  expect(await chat.turn('again').end()).toMatchObject({ status: 'done', output: { content: 'Again.' } });
  // The provider gets one result for each call, with what the sub-agents had begun.
  expect(resultsIn(chat, 1)).toEqual([
    expect.stringMatching(/cancelled.*\nIt had called these tools:\n- look\({"at": ?"it"}\): done$/),
    expect.not.stringContaining('tools'),
  ]);
});

test('a turn that resumes sub-agents and is cancelled ends them in its log', async () => {
  const chat = await server.chat({ spec: { client_tools: [door] } });
  const writing = held(
    (call) => call.text('I am'),
    () => undefined,
  );
  chat.script(
    start(chat, { name: 'one', scripts: [use({ name: 'open_door', id: 'd1' }), writing.script] }),
    say('Again.'),
  );
  const { one = '' } = threadsOf(await chat.turn('go').done);
  const reader = chat.turn([respond(one, 'd1', 'open')]);
  await reader.says('I am');
  await server.api.send('POST', `${chat.path}/cancel`, {});
  const frames = await reader.done;
  expect(frames.filter(({ type }) => /^(thread|tool)\./.test(type))).toMatchObject([
    { type: 'thread.done', thread_id: one, title: 'one', state: { status: 'error' } },
    { type: 'tool.response', thread_id: 'main', tool_call_id: 'call_one', outcome: 'cancelled' },
  ]);
  writing.release();
  expect(await chat.turn('again').end()).toMatchObject({ status: 'done', output: { content: 'Again.' } });
});

test('registered agents run as sub-agents with their own specs, as they were when the turn began', async () => {
  const chat = await server.chat();
  const clerk = `${chat.agent}-clerk`;
  const registered = (instructions: string) =>
    server.api.putAgent(clerk, {
      ...onTestServer,
      model: { name: clerk },
      instructions,
      config: { dynamic_sub_agents: { enabled: false } },
    });
  await registered('You are a clerk.');
  await server.api.putAgent(chat.agent, {
    model: { name: chat.agent },
    agents: [clerk],
    config: { dynamic_sub_agents: { enabled: false } },
  });
  const sessionId = await server.api.createSession(chat.agent);
  server.model.script(clerk, use({ name: 'pay', args: { to: 'bob' }, id: 'p1' }), say('paid'));
  const waiting = held(
    () => undefined,
    (call) => void start(chat, { name: 'clerk', agent: clerk })(call),
  );
  chat.script(waiting.script, say('Good.'));
  const first = server.api.turn(sessionId, 'pay bob');
  await waiting.reached;
  await registered('You are a thief.');
  waiting.release();
  const frames = await first.done;
  const { clerk: thread = '' } = threadsOf(frames);
  // Its own policy asks for an approval, and its own server is connected in its thread.
  expect(await first.end()).toMatchObject({
    required_actions: [{ type: 'tool.approval_required', thread_id: thread }],
  });
  expect(byThread(folded(frames))[thread]?.map(({ type }) => type)).toEqual([
    'thread.created',
    'mcp.initialize',
    'model.message',
    'tool.approval_required',
  ]);
  const second = server.api.turn(sessionId, [allow(thread, 'p1')]);
  expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'Good.' } });
  const asked = server.model.requestsTo(clerk);
  expect(asked.map(({ messages: [system] }) => system?.content)).toEqual(['You are a clerk.', 'You are a clerk.']);
  expect(asked[0]?.tools?.map((tool) => tool.function.name)).not.toContain('create_sub_agent');
  const root = chat.requests()[0]?.tools?.find((tool) => tool.function.name === 'create_sub_agent');
  expect(root).toMatchObject({ function: { parameters: { required: ['name', 'input', 'agent'] } } });
});

test('an agent that names an unknown sub-agent cannot start a turn', async () => {
  const chat = await server.chat({ spec: { agents: ['nobody'] } });
  const { status, body } = await server.api.send('POST', `${chat.path}/turns`, { input: [] });
  expect([status, body.error.code, body.error.param]).toEqual([422, 'invalid_agent', 'agent.agents']);
  expect(chat.requests()).toEqual([]);
});

test('an agent may do without sub-agents', async () => {
  const chat = await server.chat({ spec: { config: { dynamic_sub_agents: { enabled: false } } } });
  await chat.turn('hi').done;
  expect(chat.requests()[0]?.tools?.map((tool) => tool.function.name)).toEqual(['ask_user_question']);
});

test('a message that asks for a hundred sub-agents starts ten of them, of which five run at once', async () => {
  const chat = await server.chat();
  const name = modelOf(chat, 'one');
  server.model.script(name, ...Array.from({ length: 10 }, () => say('one')));
  const args = { name: 'one', input: 'a task', model: name };
  chat.script(
    use(...Array.from({ length: 100 }, (_, i) => ({ name: 'create_sub_agent', id: `c${i}`, args }))),
    say('Oh.'),
  );
  const reader = chat.turn('go');
  const frames = await reader.done;
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Oh.' } });
  expect(frames.filter(({ type }) => type === 'thread.done')).toHaveLength(10);
  let [open, most] = [0, 0];
  for (const event of await historyOf(await reader.turnId())) {
    if (event.activityTaskScheduledEventAttributes) open += 1;
    if (event.activityTaskCompletedEventAttributes) open -= 1;
    most = Math.max(most, open);
  }
  expect(most).toBe(5);
  const refused = frames.filter((frame) => frame.type === 'tool.response' && frame.outcome === 'failed');
  expect(refused).toHaveLength(90);
  expect(refused[0]).toMatchObject({ content: expect.stringContaining('10 by one message, 50 in all') });
});

test('sub-agents that start each other for ever end at the limit of the turn', async () => {
  const chat = await server.chat({ spec: { config: { iteration_limit: 4 } } });
  const args = { name: 'again', input: 'do it again' };
  server.model.script(
    chat.agent,
    ...Array.from({ length: 2_000 }, () =>
      use(...Array.from({ length: 3 }, () => ({ name: 'create_sub_agent', args }))),
    ),
  );
  const reader = chat.turn('go');
  const frames = await reader.done;
  expect(await reader.end()).toMatchObject({ status: 'error', message: expect.stringContaining('4 model calls') });
  expect(frames.filter(({ type }) => type === 'thread.created')).toHaveLength(50);
  expect(frames.filter(({ type }) => type === 'thread.done')).toHaveLength(50);
});

test('a message that asks for 500 sub-agents, more than a record can hold, starts none', async () => {
  const chat = await server.chat();
  const args = { name: 'one', input: 'a task' };
  chat.script(use(...Array.from({ length: 500 }, (_, i) => ({ name: 'create_sub_agent', id: `c${i}`, args }))));
  const reader = chat.turn('go');
  expect(await reader.end()).toMatchObject({ status: 'error', message: expect.stringContaining('cannot be stored') });
  expect(threadsOf(await reader.done)).toEqual({});
  expect(chat.requests()).toHaveLength(1);
});

test('a sub-agent may leave ten calls of a message to people, so that all that wait fit into the end of the turn', async () => {
  const chat = await server.chat({ spec: { client_tools: [door] } });
  const asks = use(...Array.from({ length: 12 }, (_, i) => ({ name: 'open_door', id: `d${i}` })));
  chat.script(start(chat, { name: 'asking', scripts: [asks] }));
  const end = await chat.turn('go').end();
  if (end.status !== 'done') throw new Error(end.status);
  expect(end.required_actions.map(({ tool_calls: calls }) => calls.length)).toEqual([10]);
});

test('the inputs of model calls stay small, however many steps three sub-agents have made', async () => {
  const chat = await server.chat({ spec: onTestServer });
  const names = ['a', 'b', 'c'];
  const scripts = (): Script[] => [
    ...Array.from({ length: 30 }, (_, n) => use({ name: 'look', args: { at: n } })),
    say('seen'),
  ];
  chat.script(start(chat, ...names.map((name) => ({ name, scripts: scripts() }))), say('All seen.'));
  const reader = chat.turn('go');
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'All seen.' } });
  const events = await historyOf(await reader.turnId());
  const inputs = events.flatMap(({ activityTaskScheduledEventAttributes: scheduled }) =>
    scheduled?.activityType?.name === 'callModel' ? [scheduled.input?.payloads?.[0]?.data?.length ?? 0] : [],
  );
  expect(inputs).toHaveLength(1 + 3 * 31 + 1);
  // The constants of a thread are in the start of the turn and in the record of the thread.
  expect(Math.max(...inputs.slice(1, 4))).toBeLessThan(500);
  // A step of each of the three adds two results, of which each is a stamp in the next call of every thread.
  expect(Math.max(...inputs.slice(4, -1))).toBeLessThan(2_500);
});

test('the lists of events give those of one thread', async () => {
  const chat = await server.chat({ spec: onTestServer });
  chat.script(
    start(chat, { name: 'a', scripts: [use({ name: 'look', args: { at: 'a' } }), say('Seen.')] }),
    say('Done.'),
  );
  const reader = chat.turn('delegate');
  const { a: thread = '' } = threadsOf(await reader.end().then(() => reader.frames));
  chat.script(say('Hello.'));
  await chat.turn('Hi').end();
  const typesOf = async (list: string) => {
    const { data } = await server.api.get<{ data: ListedEvent[] }>(`${chat.path}/${list}`);
    return data.map(({ event = {}, ...own }) => ({ type: '', thread_id: null, ...own, ...event }));
  };
  const inTurn = `turns/${await reader.turnId()}/events`;
  const ofThread = ['thread.created', 'model.message', 'tool.response', 'model.message', 'thread.done'];
  const listed = await typesOf(`${inTurn}?thread_id=${thread}`);
  expect(listed.map(({ type }) => type)).toEqual(ofThread);
  expect(new Set(listed.map(({ thread_id: id }) => id))).toEqual(new Set([thread]));
  const paged = await typesOf(`${inTurn}?thread_id=${thread}&order=desc&limit=2`);
  expect(paged.map(({ type }) => type)).toEqual(['thread.done', 'model.message']);
  expect((await typesOf(`events?thread_id=${thread}`)).map(({ type }) => type)).toEqual(ofThread.toReversed());
  const ofRoot = await typesOf('events?thread_id=main');
  expect(ofRoot.filter(({ type }) => type === 'model.message')).toHaveLength(3);
  expect(ofRoot.filter(({ thread_id: id }) => id !== 'main')).toEqual([]);
  expect(await typesOf('events?thread_id=no_thread')).toEqual([]);
  expect((await server.api.send('GET', `${chat.path}/events?thread_id=%07`)).status).toBe(400);
});

interface ListedEvent {
  type?: string;
  thread_id?: string | null;
  event?: { type?: string; thread_id?: string | null };
}
