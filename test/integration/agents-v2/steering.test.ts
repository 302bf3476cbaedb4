import { afterAll, beforeAll, expect, test } from 'vitest';
import { AgentSession, agentNamed, kindsOf } from '../../support/agents-v2.ts';
import { eventually } from '../../support/eventually.ts';
import { hangUp } from '../../support/raw-http.ts';
import { held, say, textOf, use } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** A client of the Agents API v2 steers a session: messages, pause, resume, force answer, cancel, create again. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

const lookup = { name: 'lookup', description: 'looks it up' };

/** A model's answer that the test releases. */
function gate(text: string) {
  return held(
    () => undefined,
    (call) => {
      call.text(text);
      call.finish();
    },
  );
}

test('messages whose answer was lost are given once: the repetition of the client changes nothing', async () => {
  const { api, model } = server;
  const first = gate('One.');
  model.script('lost', say('Zero.'), first.script, say('Two.'), say('Three.'));
  const session = await AgentSession.create(api, { agent: agentNamed('lost'), messages: 'Zero', idle_timeout_s: 600 });
  await session.until('idle');
  const message = { type: 'user_message', message: 'One' };
  const given = () => {
    const users = model
      .requestsTo('lost')
      .at(-1)
      ?.messages.filter(({ role }) => role === 'user');
    return users?.map(textOf);
  };
  await hangUp(api.url, `${session.path}/messages`, message);
  await first.reached;
  expect((await session.post('messages', message)).status).toBe(202);
  first.release();
  await session.until('idle');
  expect(given()).toEqual(['Zero', 'One']);
  // That answer has arrived: the same message once more is another one.
  expect((await session.post('messages', message)).status).toBe(202);
  await eventually(() => expect(given()).toEqual(['Zero', 'One', 'One']));
});

test('a session is paused, gets a message, and resumes with it', async () => {
  const { api, model } = server;
  const first = held(
    () => undefined,
    (call) => {
      call.toolCall('lookup', {}, 'a');
      call.finish();
    },
  );
  model.script('pausing', first.script, say('Both.'));
  const agent = agentNamed('pausing', { tools: [lookup] });
  const session = await AgentSession.create(api, { agent, messages: 'One' });
  await first.reached;
  expect((await session.post('pause')).status).toBe(202);
  expect((await session.post('pause')).status).toBe(202);
  // It takes effect after the step.
  first.release();
  expect((await session.until('paused')).pending_tool_calls).toMatchObject([{ id: 'a' }]);
  const result = { kind: 'tool_result', tool_req: { tool_name: 'lookup', id: 'a' }, result: 1 };
  expect((await session.post('tool_results', result)).status).toBe(202);
  expect((await session.status()).status).toBe('paused');
  expect((await session.say('Two')).status).toBe(202);
  const { status, events } = await session.settle();
  expect(status.status).toBe('completed');
  expect(textOf(model.requestsTo('pausing').at(-1)?.messages.at(-1))).toBe('Two');
  expect(kindsOf(events).filter((kind) => /flow|RunStatus|message/.test(kind))).toEqual([
    'message_event',
    'flow_event',
    'AgentRunStatusChangeEvent',
    'message_event',
    'flow_event',
    'AgentRunStatusChangeEvent',
  ]);
  for (const what of ['pause', 'resume', 'force_answer']) {
    expect(await session.post(what)).toMatchObject({ status: 400, body: { detail: [{ type: 'nothing_running' }] } });
  }
});

test('an answer is forced while calls wait, which are settled for the client', async () => {
  const { api, model } = server;
  model.script('forced', use({ name: 'lookup', id: 'a' }), say('Without it.'));
  const agent = agentNamed('forced', { tools: [lookup] });
  const session = await AgentSession.create(api, { agent, messages: 'Look it up.' });
  await session.until('awaiting_tool_results');
  expect((await session.post('force_answer')).status).toBe(202);
  const { status, events } = await session.settle();
  expect(status).toMatchObject({ status: 'completed', pending_tool_calls: [] });
  expect(kindsOf(events).slice(-5)).toEqual([
    'ActiveStateChangeEvent',
    'policy_event',
    'answer_event',
    'MetricsUpdateEvent',
    'AgentCompletionEvent',
  ]);
  const late = { kind: 'tool_result', tool_req: { tool_name: 'lookup', id: 'a' }, result: 1 };
  expect((await session.post('tool_results', late)).status).toBe(409);
});

test('a cancelled session keeps its events, and a message starts it again with its history', async () => {
  const { api, model } = server;
  const answer = gate('Never read.');
  model.script('cancelled', answer.script, say('Again.'));
  const session = await AgentSession.create(api, { agent: agentNamed('cancelled'), messages: 'One' });
  await answer.reached;
  expect((await api.send('DELETE', session.path)).status).toBe(204);
  const { status, events } = await session.settle();
  expect(status).toMatchObject({ status: 'interrupted', error: null });
  expect(events.at(-1)).toMatchObject({ type: 'AgentCompletionEvent', data: { reason: 'stopped' } });
  answer.release();
  expect((await api.send('DELETE', session.path)).status).toBe(204);
  expect((await session.get()).finished_at).toBe(events.at(-1)?.timestamp);

  expect((await session.say('Two')).status).toBe(202);
  const again = await session.settle(events.length);
  expect(again.status.status).toBe('completed');
  const users = model
    .requestsTo('cancelled')
    .at(-1)
    ?.messages.filter(({ role }) => role === 'user');
  expect(users?.map(textOf)).toEqual(['One', 'Two']);
});

test('an idle session is interrupted by its cancellation, and continues with a message', async () => {
  const { api, model } = server;
  model.script('idle', say('One.'), say('Two.'));
  const session = await AgentSession.create(api, { agent: agentNamed('idle'), messages: 'Hi', idle_timeout_s: 600 });
  const { events } = await session.settle();
  expect((await api.send('DELETE', session.path)).status).toBe(204);
  expect((await session.status()).status).toBe('interrupted');
  expect(await session.drain(events.length)).toEqual([]);
  await session.say('And?');
  expect((await session.settle(events.length)).status.status).toBe('idle');
});

test('a session without messages waits for the first one', async () => {
  const { api, model } = server;
  const session = await AgentSession.create(api, { agent: agentNamed('silent') });
  expect((await session.status()).status).toBe('idle');
  expect(await session.changes('from_index=0')).toBeUndefined();
  model.script('silent', say('Hello.'));
  await session.say('Hi');
  expect((await session.settle()).status.status).toBe('completed');
});

test('equal requests with a key are one session, and another body with the key is rejected', async () => {
  const { api, model } = server;
  model.script('once', say('Once.'));
  const request = { agent: agentNamed('once'), messages: 'Hi' };
  const headers = { 'idempotency-key': ' key-1 ' };
  const answers = await Promise.all(
    Array.from({ length: 4 }, () => api.send('POST', '/api/v2/sessions', request, headers)),
  );
  expect(answers.map(({ status }) => status)).toEqual([201, 201, 201, 201]);
  expect(new Set(answers.map(({ body }) => body.id)).size).toBe(1);
  await new AgentSession(api, answers[0]?.body.id).settle();
  expect(model.requestsTo('once').length).toBe(1);
  const other = await api.send('POST', '/api/v2/sessions', { ...request, messages: 'Ho' }, headers);
  expect([other.status, other.body.detail[0].type]).toEqual([422, 'idempotency_key_reused']);
  const blank = await api.send('POST', '/api/v2/sessions', request, { 'idempotency-key': '  ' });
  expect([blank.status, blank.body.detail[0].loc]).toEqual([422, ['header', 'Idempotency-Key']]);

  // A request that was rejected has not used its key.
  const rejected = await api.send('POST', '/api/v2/sessions', { agent: 'unknown' }, { 'idempotency-key': 'key-2' });
  expect(rejected.status).toBe(404);
  model.script('once', say('Twice.'));
  expect((await api.send('POST', '/api/v2/sessions', request, { 'idempotency-key': 'key-2' })).status).toBe(201);
});

test('a model that fails ends the session as failed, and images of messages reach the model', async () => {
  const { api, model } = server;
  model.script('failing', (call) => call.fail(400, 'no such thing'));
  const png =
    'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  const session = await AgentSession.create(api, {
    agent: agentNamed('failing'),
    messages: [{ type: 'user_message', message: 'What is this?', images: [png] }],
  });
  const { status, events } = await session.settle();
  expect(status).toMatchObject({ status: 'failed', error_code: 'internal', error: expect.stringContaining('400') });
  expect(events.at(-1)).toMatchObject({ type: 'AgentErrorEvent', data: { error: status.error } });
  expect(events[3]).toMatchObject({
    data: { kind: 'message_event', content: ['What is this?', { type: 'url', source: png, media_type: 'image/png' }] },
  });
  expect(JSON.stringify(model.requestsTo('failing')[0]?.messages.at(-1))).toContain(png);
});

test('at its limit of steps the agent is asked for its answer; one that never fits fails the session', async () => {
  const { api, model } = server;
  model.script('capped', use({ name: 'lookup', id: 'a' }), say('As far as I got.'));
  const agent = agentNamed('capped', { tools: [lookup] });
  const session = await AgentSession.create(api, { agent, messages: 'Look it up.', max_steps: 2 });
  await session.until('awaiting_tool_results');
  await session.post('tool_results', { kind: 'tool_result', tool_req: { tool_name: 'lookup', id: 'a' }, result: 1 });
  const { status } = await session.settle();
  expect(status).toMatchObject({ status: 'completed', steps: 2 });
  expect(model.requestsTo('capped')[1]?.tool_choice).toBe('none');

  model.script('misfit', say('no'), say('no'), say('no'), say('no'));
  const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
  const misfit = agentNamed('misfit', { answer_format: schema });
  const failed = await AgentSession.create(api, { agent: misfit, messages: 'How many?' });
  expect((await failed.settle()).status).toMatchObject({ status: 'failed', error_code: 'answer_validation' });
});
