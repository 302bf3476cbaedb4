import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { CANCEL_TURN, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { folded } from '../support/api-client.ts';
import { ProtectedMcpServer } from '../support/authorization-server.ts';
import { held, say, use, type Script } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** The steering of a running turn by a client: it pauses and resumes it, gives it messages, and has it answer. */

let server: TestServer;
let temporal: TemporalClient;
let slow = Promise.withResolvers<void>();
const calls: string[] = [];
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        {
          name: 'look',
          annotations: { readOnlyHint: true },
          handler: () => {
            calls.push('look');
            return 'seen';
          },
        },
        {
          name: 'slow',
          handler: async () => {
            calls.push('slow');
            await slow.promise;
            return 'slow is done';
          },
        },
      ],
    },
  });
  temporal = await TemporalClient.connect({
    address: inject('temporalAddress'),
    namespace: inject('temporalNamespace'),
  });
});
afterAll(async () => {
  await temporal.close();
  await server.stop();
});

const send = async ({ path }: Pick<Chat, 'path'>, command: string) => {
  const { status, body } = await server.api.send('POST', `${path}/${command}`, {});
  return [status, 'error' in body ? body.error.code : body];
};

const DONE = [200, {}];
const by = { subject_id: 'local', subject_type: 'user', subject_slug: 'local' };
const isSteering = ({ type }: { type: string }) => /^turn\.(paused|resumed)/.test(type);

test('a paused turn ends what runs and begins nothing, across a restart, until it is resumed', async () => {
  slow = Promise.withResolvers();
  const second = held(() => undefined, use({ name: 'look', id: 'l1' }));
  const chat = await server.chat({
    scripts: [use({ name: 'slow', id: 's1' }), second.script, say('Well.')],
    spec: onTestServer,
  });
  expect(await send(chat, 'pause')).toEqual([409, 'nothing_running']);
  const reader = chat.turn('go');
  await expect.poll(() => calls.includes('slow')).toBe(true);
  expect(await send(chat, 'resume')).toEqual(DONE);
  for (let i = 0; i < 2; i++) expect(await send(chat, 'pause')).toEqual(DONE);
  slow.resolve();
  await reader.next((one) => one.type === 'tool.response');
  const turn = `${chat.path}/turns/${await reader.turnId()}`;
  await expect
    .poll(async () => (await server.api.get(turn)).data.state)
    .toEqual({ status: 'running', paused: ['requested'] });
  reader.close();
  await server.restart();
  expect(chat.requests().length).toBe(1);
  const follower = server.api.subscribe(chat.sessionId, await reader.turnId());
  for (let i = 0; i < 2; i++) expect(await send(chat, 'resume')).toEqual(DONE);
  second.release();
  expect(await follower.end()).toMatchObject({ status: 'done', output: { content: 'Well.' } });
  const events = (await follower.done).filter(({ type }) => !/^(model|mcp)/.test(type));
  expect(events).toMatchObject([
    { type: 'turn.created' },
    { type: 'turn.paused', reason: 'requested', by },
    { type: 'tool.response', tool_call_id: 's1', outcome: 'succeeded' },
    { type: 'turn.resumed', reason: 'requested', by },
    { type: 'tool.response', tool_call_id: 'l1' },
    { type: 'turn.done' },
  ]);
  expect(folded(await follower.done).slice(1, -1)).toEqual(await server.api.list(`${turn}/events`));
  for (const command of ['pause', 'resume']) expect(await send(chat, command)).toEqual([409, 'nothing_running']);
});

test('a paused turn runs no tool of the message that was in progress, and a cancel ends it', async () => {
  const model = held(
    (call) => call.text('Wait.'),
    (call) => {
      call.toolCall('look', {}, 'l1');
      call.finish();
    },
  );
  const chat = await server.chat({ scripts: [model.script], spec: onTestServer });
  const reader = chat.turn('go');
  await reader.says('Wait.');
  expect(await send(chat, 'pause')).toEqual(DONE);
  calls.length = 0;
  model.release();
  await reader.next((one) => one.type === 'model.message.delta' && one.finish_reason === 'tool_calls');
  expect((await server.api.send('POST', `${chat.path}/cancel`, {})).status).toBe(200);
  expect(await reader.end()).toMatchObject({ status: 'cancelled', reason: 'client-cancelled' });
  expect((await reader.done).filter((one) => isSteering(one) || one.type === 'tool.response')).toMatchObject([
    { type: 'turn.paused' },
    { type: 'tool.response', tool_call_id: 'l1', outcome: 'cancelled' },
  ]);
  expect(calls).toEqual([]);
});

test('a message that is repeated after a restart runs no tool while its turn is paused, and then each call once', async () => {
  calls.length = 0;
  const first = held(
    (call) => call.text('I was saying'),
    () => undefined,
  );
  const chat = await server.chat({
    scripts: [first.script, use({ name: 'look', id: 'l1' }), say('Well.')],
    spec: onTestServer,
  });
  const turn = chat.turn('go');
  await turn.says('I was saying');
  const turnId = await turn.turnId();
  expect(await send(chat, 'pause')).toEqual(DONE);
  await server.restart();
  await expect.poll(() => chat.requests().length).toBe(2);
  const reader = server.api.subscribe(chat.sessionId, turnId);
  await reader.type('turn.paused');
  expect(calls).toEqual([]);
  expect(await send(chat, 'resume')).toEqual(DONE);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Well.' } });
  expect(calls).toEqual(['look']);
});

test('a pause applies to the sub-agents, too', async () => {
  const chat = await server.chat({ spec: onTestServer });
  const models = ['first', 'second'].map((name) => {
    const model = held(
      () => undefined,
      (call) => {
        call.toolCall('look', {}, 'l1');
        call.finish();
      },
    );
    server.model.script(`${chat.agent}-${name}`, model.script, say(`${name} is done.`));
    return { name, ...model };
  });
  const starts = models.map(({ name }) => ({
    name: 'create_sub_agent',
    id: `call_${name}`,
    args: { name, input: 'look', model: `${chat.agent}-${name}` },
  }));
  chat.script(use(...starts), say('Both are done.'));
  const reader = chat.turn('go');
  await Promise.all(models.map(({ reached }) => reached));
  calls.length = 0;
  expect(await send(chat, 'pause')).toEqual(DONE);
  for (const { release } of models) release();
  const ended = new Set<string>();
  await reader.next((one) => {
    if (one.type === 'model.message.delta' && one.finish_reason && one.thread_id !== 'main') ended.add(one.thread_id);
    return ended.size === 2;
  });
  expect(calls).toEqual([]);
  expect(await send(chat, 'resume')).toEqual(DONE);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Both are done.' } });
  expect(calls).toEqual(['look', 'look']);
  const order = (await reader.done).filter((one) => isSteering(one) || one.type === 'tool.response');
  expect(order.slice(0, 2).map(({ type }) => type)).toEqual(['turn.paused', 'turn.resumed']);
});

const post = (
  { path }: Pick<Chat, 'path'>,
  content: unknown,
  more: object = { on_running: 'steer' },
  headers: Record<string, string> = {},
) => server.api.send('POST', `${path}/turns`, { input: [{ type: 'user.message', content }], ...more }, headers);

const promptOf = (chat: Chat, i: number) => chat.requests()[i]?.messages.map(({ role, content }) => [role, content]);

test('a message for a running turn is read with its next model call, once, by that turn and by later ones', async () => {
  slow = Promise.withResolvers();
  const last = held(
    (call) => call.text('Almost'),
    (call) => call.finish(),
  );
  const chat = await server.chat({
    scripts: [use({ name: 'slow', id: 's1' }), last.script, say('Both.'), say('Later.')],
    spec: onTestServer,
  });
  calls.length = 0;
  const reader = chat.turn('go');
  const turnId = await reader.turnId();
  await expect.poll(() => calls).toEqual(['slow']);
  const during = await post(chat, 'during the tool');
  expect(during).toMatchObject({ status: 200, body: { data: { id: turnId, state: { status: 'running' } } } });
  slow.resolve();
  await reader.says('Almost');
  // The turn would end with this message, and continues to answer.
  for (let i = 0; i < 2; i++) {
    const again = await post(
      chat,
      [{ type: 'text', text: 'at the end' }],
      { on_running: 'steer' },
      { 'idempotency-key': 'k' },
    );
    expect(again).toMatchObject({ status: 200, body: { data: { id: turnId } } });
  }
  last.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Both.' } });
  expect(promptOf(chat, 2)).toEqual([
    ['user', 'go'],
    ['assistant', null],
    ['tool', 'slow is done'],
    ['user', 'during the tool'],
    ['assistant', 'Almost'],
    ['user', expect.anything()],
  ]);
  const repeated = await post(
    chat,
    [{ type: 'text', text: 'at the end' }],
    { on_running: 'steer' },
    { 'idempotency-key': 'k' },
  );
  expect(repeated).toMatchObject({ status: 200, body: { data: { id: turnId, state: { status: 'done' } } } });
  const events = (await reader.done).filter(({ type }) => type === 'user.steered');
  expect(events).toMatchObject([
    { by, thread_id: null, content: 'during the tool' },
    { by, content: [{ type: 'text', text: 'at the end' }] },
  ]);
  expect(folded(await reader.done).slice(1, -1)).toEqual(await server.api.list(`${chat.path}/turns/${turnId}/events`));
  // None runs: the message begins a turn.
  const next = chat.turn('then', { on_running: 'steer' });
  expect(await next.end()).toMatchObject({ status: 'done', output: { content: 'Later.' } });
  expect(promptOf(chat, 3)).toEqual([...(promptOf(chat, 2) ?? []), ['assistant', 'Both.'], ['user', 'then']]);
});

test('only messages are for a running turn; the agent sets the default, and a fork is a turn of its own', async () => {
  const model = held(
    (call) => call.text('busy'),
    (call) => call.finish(),
  );
  const chat = await server.chat({
    scripts: [say('first'), model.script, say('steered')],
    spec: { config: { on_running: 'steer' } },
  });
  const first = chat.turn('one');
  await first.done;
  const reader = chat.turn('two');
  await reader.says('busy');
  const refused = await server.api.send('POST', `${chat.path}/turns`, { input: [], on_running: 'steer' });
  expect([refused.status, refused.body.error.code]).toEqual([422, 'messages_required']);
  for (const id of ['none', await first.turnId()]) {
    const fork = await post(chat, 'fork', { previous_turn_id: id });
    expect([fork.status, fork.body.error.code]).toEqual([409, 'turn_running']);
  }
  const turnId = await reader.turnId();
  expect(await post(chat, 'three', {})).toMatchObject({ status: 200, body: { data: { id: turnId } } });
  expect(await post(chat, 'four', { previous_turn_id: turnId })).toMatchObject({ body: { data: { id: turnId } } });
  model.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'steered' } });
  expect(promptOf(chat, 2)?.slice(-2)).toEqual([
    ['user', 'three'],
    ['user', 'four'],
  ]);
});

test('a message after a cancel begins the next turn', async () => {
  const model = held(
    (call) => call.text('busy'),
    (call) => call.finish(),
  );
  const chat = await server.chat({ scripts: [model.script, say('next')] });
  const reader = chat.turn('one');
  await reader.says('busy');
  expect((await server.api.send('POST', `${chat.path}/cancel`, {})).status).toBe(200);
  // Its session has accepted the cancel, and sends it on: until the turn has it, a message would be for this turn.
  const turn = turnWorkflowId(await reader.turnId());
  const signals = async () =>
    (await temporal.events(turn)).flatMap((event) => event.workflowExecutionSignaledEventAttributes?.signalName ?? []);
  await expect.poll(signals).toContain(CANCEL_TURN);
  const next = chat.turn('two', { on_running: 'steer' });
  expect(await next.end()).toMatchObject({ status: 'done', output: { content: 'next' } });
  expect(await reader.end()).toMatchObject({ status: 'cancelled' });
  expect((await reader.done).filter(({ type }) => type === 'user.steered')).toEqual([]);
  expect(promptOf(chat, 1)?.at(-1)).toEqual(['user', 'two']);
});

const askedToAnswer = (chat: Chat) => chat.requests().map((request) => request.tool_choice);

test('a turn that is to answer does so with its next model call, without tools, and resumes for it', async () => {
  slow = Promise.withResolvers();
  const disobedient: Script = (call) => {
    call.text('Fine.');
    call.toolCall('look', {}, 'l1');
    call.finish();
  };
  const chat = await server.chat({
    scripts: [use({ name: 'slow', id: 's1' }), disobedient, say('Again.')],
    spec: onTestServer,
  });
  expect(await send(chat, 'force_answer')).toEqual([409, 'nothing_running']);
  calls.length = 0;
  const reader = chat.turn('go');
  await expect.poll(() => calls).toEqual(['slow']);
  expect(await send(chat, 'pause')).toEqual(DONE);
  for (let i = 0; i < 2; i++) expect(await send(chat, 'force_answer')).toEqual(DONE);
  slow.resolve();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Fine.' }, required_actions: [] });
  expect(calls).toEqual(['slow']);
  expect((await reader.done).filter((one) => isSteering(one) || one.type === 'tool.response')).toMatchObject([
    { type: 'turn.paused' },
    { type: 'turn.resumed', reason: 'requested', by },
    { tool_call_id: 's1', outcome: 'succeeded' },
    { tool_call_id: 'l1', outcome: 'failed' },
  ]);
  // The next turn may use tools.
  await chat.turn('next').done;
  expect(askedToAnswer(chat)).toEqual([undefined, 'none', undefined]);
});

test('sub-agents and a turn that waits for approvals answer, too', async () => {
  slow = Promise.withResolvers();
  const chat = await server.chat({ spec: { ...onTestServer, config: { pause: 'wait' } } });
  server.model.script(`${chat.agent}-sub`, use({ name: 'slow', id: 's1' }), say('As far as I know, yes.'));
  const sub = { name: 'create_sub_agent', id: 'c1', args: { name: 'sub', input: 'look', model: `${chat.agent}-sub` } };
  chat.script(use(sub, { name: 'ask_user_question', id: 'q1', args: { question: 'Why?' } }), say('Yes.'));
  calls.length = 0;
  const reader = chat.turn('go');
  await expect.poll(() => calls).toEqual(['slow']);
  expect(await send(chat, 'force_answer')).toEqual(DONE);
  slow.resolve();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Yes.' } });
  expect(await reader.done).toContainEqual(
    expect.objectContaining({ type: 'tool.response', tool_call_id: 'q1', outcome: 'cancelled' }),
  );
  expect(
    chat
      .requests()[1]
      ?.messages.slice(-2)
      .map(({ content }) => content),
  ).toEqual(['As far as I know, yes.', expect.stringContaining('asked for an answer')]);
  const forced = server.model.requests.filter(({ model }) => model === `${chat.agent}-sub`);
  expect(forced.map((request) => request.tool_choice)).toEqual([undefined, 'none']);
});

test('a message that arrives with the last model call that the limit allows is left to the next turn', async () => {
  const model = held(
    (call) => call.text('The answer is 42.'),
    (call) => call.finish(),
  );
  const chat = await server.chat({ scripts: [model.script, say('And 43.')], spec: { config: { iteration_limit: 1 } } });
  const reader = chat.turn('what?');
  await reader.says('The answer is 42.');
  expect(await post(chat, 'and then?')).toMatchObject({ status: 200 });
  model.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'The answer is 42.' } });
  expect(await chat.turn('so?').end()).toMatchObject({ status: 'done', output: { content: 'And 43.' } });
  expect(promptOf(chat, 1)?.slice(-2)).toEqual([
    ['user', 'and then?'],
    ['user', 'so?'],
  ]);
});

test('a turn whose model waits for a sign-in answers without its server when it is asked to', async () => {
  const notes = await ProtectedMcpServer.start();
  onTestFinished(() => notes.stop());
  const model = held(() => undefined, say('I know nothing of your notes.'));
  const chat = await server.chat({
    scripts: [model.script],
    spec: { mcp_servers: [{ type: 'inline', name: 'notes', url: notes.mcp.url }], config: { pause: 'wait' } },
  });
  const reader = chat.turn('what is in my notes?');
  await reader.type('turn.paused');
  for (let i = 0; i < 2; i++) expect(await send(chat, 'force_answer')).toEqual(DONE);
  model.release();
  expect(await reader.end()).toMatchObject({
    status: 'done',
    output: { content: 'I know nothing of your notes.' },
    required_actions: [],
  });
});
