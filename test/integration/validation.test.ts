import { afterAll, beforeAll, expect, test } from 'vitest';
import { held, say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** Rows of the contract's table of turn input (section 4) that no other file has. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
});
afterAll(() => server.stop());

const message = (content: string) => ({ type: 'user.message', content });
const approval = (status: unknown) => ({
  type: 'user.tool_approval',
  thread_id: 'main',
  tool_call_id: 'w1',
  approval: { status },
});
const response = (id: string, content = 'an answer') => ({
  type: 'user.tool_response',
  thread_id: 'main',
  tool_call_id: id,
  content,
});

/** A session whose last turn waits for an approval and for a response of the client. */
async function paused(): Promise<{ chat: Chat; turnId: string }> {
  const calls = use({ name: 'write', id: 'w1' }, { name: 'ask_user_question', args: { question: '?' }, id: 'q1' });
  const chat = await server.chat({ scripts: [calls, say('next')], spec: onTestServer });
  const reader = chat.turn('go');
  expect(await reader.end()).toMatchObject({ status: 'done', output: null });
  return { chat, turnId: await reader.turnId() };
}

test('inputs that are rejected while calls are pending', async () => {
  const { chat, turnId } = await paused();
  const edited = { ...approval('allow'), approval: { status: 'allow', arguments: ['/'] } };
  const cases: [unknown, number, string][] = [
    [{ input: [message('hi')], previous_turn_id: turnId }, 422, 'actions_pending'],
    [{ input: [], previous_turn_id: turnId }, 422, 'actions_pending'],
    [{ input: [approval('perhaps'), response('q1')] }, 400, 'invalid_request'],
    [{ input: [approval(undefined), response('q1')] }, 400, 'invalid_request'],
    [{ input: [edited, response('q1')] }, 400, 'invalid_request'],
    [{ input: [approval('allow'), response('q1')], on_runing: 'queue' }, 400, 'invalid_request'],
    [{ input: [{ ...approval('allow'), reason: 'why not' }, response('q1')] }, 400, 'invalid_request'],
    ['{"input": [', 400, 'invalid_json'],
    ['', 400, 'invalid_request'],
    [{ input: [response('q1'), message('and hi')] }, 400, 'mixed_input'],
    [{ input: [approval('allow'), response('q1'), response('q1', 'another')] }, 422, 'call_answered_twice'],
  ];
  for (const [body, status, code] of cases) {
    const answer = await server.api.send('POST', `${chat.path}/turns`, body);
    expect([answer.status, answer.body.error.code], JSON.stringify(body)).toEqual([status, code]);
  }
  expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(1);
  expect(await chat.turn([approval('allow'), response('q1')]).end()).toMatchObject({ output: { content: 'next' } });
});

test('a new root is independent of calls that are pending elsewhere', async () => {
  for (const none of ['none', 'null']) {
    const { chat } = await paused();
    const reader = chat.turn('something else', { previous_turn_id: none });
    expect((await reader.type('turn.created')).previous_turn_id).toBe(null);
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'next' } });
    expect(chat.requests()[1]?.messages.map(({ content }) => content)).toEqual(['something else']);
  }
});

test('a session may start with an empty input', async () => {
  const chat = await server.chat({ scripts: [say('hello, stranger')] });
  expect(await server.api.stream(`${chat.path}/turns`, {}).end()).toMatchObject({ status: 'done' });
  expect(chat.requests().length).toBe(1);
});

test('two turns never run at once, even as roots or on different branches', async () => {
  const models = [1, 2, 3].map(() =>
    held(
      (call) => call.text('...'),
      (call) => call.finish(),
    ),
  );
  const chat = await server.chat({ scripts: [say('ready'), ...models.map(({ script }) => script)] });
  const first = chat.turn('hello');
  await first.done;
  const running = chat.turn('on the tip');
  // The model is called before the session has the turn: only its output at a reader shows that the turn runs.
  await running.says('...');
  const root = chat.turn('a root', { previous_turn_id: 'none' });
  await models[1]?.reached;
  // It has ended before the next one calls its model.
  const stateOf = async (turnId: string) => (await server.api.get(`${chat.path}/turns/${turnId}`)).data.state;
  const replaced = { status: 'cancelled', reason: 'cancelled-for-next-turn' };
  expect(await stateOf(await running.turnId())).toMatchObject(replaced);
  await root.says('...');
  const fork = chat.turn('a fork', { previous_turn_id: await first.turnId() });
  await models[2]?.reached;
  expect(await stateOf(await root.turnId())).toMatchObject(replaced);
  for (const { release } of models) release();
  expect((await fork.end()).status).toBe('done');
});
