import { afterAll, beforeAll, expect, test } from 'vitest';
import { fromUuid, toUuid } from '../../../src/api/agents-v2/session-ids.ts';
import { AgentSession, agentNamed, kindsOf } from '../../support/agents-v2.ts';
import { held, say, use } from '../../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../../support/test-server.ts';

/** `/changes` and `/status` of the Agents API v2. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' }] },
  });
});
afterAll(() => server.stop());

const START = ['RequestStartEvent', 'RequestStartDispatchedEvent', 'AgentStartedEvent'];
const lookup = { name: 'lookup', description: 'looks it up', input_schema: { type: 'object' } };

test('a cursor is the number of events, and every page continues where the one before it ended', async () => {
  const { api, model } = server;
  model.script('pages', say('Hello.'), say('Again.'));
  const session = await AgentSession.create(api, {
    agent: agentNamed('pages'),
    messages: 'Hi',
    idle_timeout_s: 600,
  });
  const first = await session.settle();
  expect(kindsOf(first.events)).toEqual([
    ...START,
    'message_event',
    'policy_event',
    'answer_event',
    'MetricsUpdateEvent',
    'ActiveStateChangeEvent',
  ]);
  await session.say('And?');
  const second = await session.settle(first.events.length);
  expect(kindsOf(second.events)).toEqual([
    'ActiveStateChangeEvent',
    'message_event',
    'policy_event',
    'answer_event',
    'MetricsUpdateEvent',
    'ActiveStateChangeEvent',
  ]);
  const all = [...first.events, ...second.events];
  expect(await session.drain()).toEqual(all);
  for (let from = 0; from <= all.length; from += 3) {
    const page = await session.changes(`from_index=${from}&limit=3`);
    expect(page?.new_events ?? []).toEqual(all.slice(from, from + 3));
    if (page) expect(page.first_index).toBe(from);
  }
  expect(await session.changes('from_index=-4&limit=1')).toMatchObject({ new_events: [all[0]], first_index: 0 });
  const { body } = await api.send('GET', `${session.path}/events?size=5&page=2`);
  expect(body).toEqual({ items: all.slice(5, 10), total: all.length, page: 2 });

  // After a restart nothing is in memory.
  await server.restart();
  const again = new AgentSession(server.api, session.id);
  expect(await again.drain(4)).toEqual(all.slice(4));
  expect(await again.get()).toMatchObject({
    status: { status: 'idle', steps: 2 },
    latest_answer: 'Again.',
    request: { agent: agentNamed('pages'), messages: [{ message: 'Hi' }] },
  });
});

test('the snapshot has the state and the answer, and no events', async () => {
  const { api, model } = server;
  model.script('snapshot', say('42'));
  const session = await AgentSession.create(api, { agent: agentNamed('snapshot'), messages: 'How many?' });
  const { events } = await session.settle();
  expect(await session.changes('from_index=0&include_events=false&wait_for_seconds=0')).toMatchObject({
    status: 'completed',
    new_events: [],
    answer: '42',
    metrics: { steps: 1 },
  });
  expect(await session.changes(`from_index=${events.length}&include_events=false`)).toBeUndefined();
  expect(await session.changes(`from_index=${events.length + 100}&wait_for_seconds=1`)).toBeUndefined();
});

test('a wait ends with the next event, without a query by each of its waiters', async () => {
  const { api, model } = server;
  const answer = held(
    (call) => call.text('Half'),
    (call) => {
      call.text(' and half.');
      call.finish();
    },
  );
  model.script('slow', answer.script);
  const session = await AgentSession.create(api, { agent: agentNamed('slow'), messages: 'Slowly.' });
  await answer.reached;
  const known = await session.drain();
  expect(kindsOf(known)).toEqual([...START, 'message_event']);
  expect(await session.changes(`from_index=4&wait_for_seconds=1`)).toBeUndefined();
  const waiters = Array.from({ length: 200 }, () => session.changes('from_index=4&wait_for_seconds=25'));
  // All of them are waiting when the model continues: the status was asked after they were sent.
  expect((await session.status()).status).toBe('running');
  answer.release();
  const pages = await Promise.all(waiters);
  for (const page of pages) expect(kindsOf(page?.new_events ?? [])[0]).toBe('policy_event');
});

test('a wait on an idle session ends when a message starts its next turn, whose 202 comes after the change', async () => {
  const { api, model } = server;
  model.script('idle', say('First.'));
  const session = await AgentSession.create(api, { agent: agentNamed('idle'), messages: 'Hi', idle_timeout_s: 600 });
  const { events } = await session.settle();
  const waiting = session.changes(`from_index=${events.length}&wait_for_seconds=25`);
  const answer = held(
    () => undefined,
    (call) => {
      call.text('Second.');
      call.finish();
    },
  );
  model.script('idle', answer.script);
  expect((await session.say('More?')).status).toBe(202);
  expect((await session.status()).status).toBe('running');
  expect(kindsOf((await waiting)?.new_events ?? [])[0]).toBe('ActiveStateChangeEvent');
  answer.release();
  expect((await session.settle(events.length)).status.status).toBe('idle');
});

test('calls that wait for the client are listed with each change, until none is left', async () => {
  const { api, model } = server;
  model.script(
    'tools',
    use({ name: 'lookup', id: 'a', args: { n: 1 } }, { name: 'lookup', id: 'b', args: { n: 2 } }),
    say('Found.'),
  );
  const agent = agentNamed('tools', { tools: [lookup] });
  const session = await AgentSession.create(api, { agent, messages: 'Look both up.' });
  const waiting = await session.until('awaiting_tool_results');
  const [a, b] = [
    { tool_name: 'lookup', args: { n: 1 }, id: 'a' },
    { tool_name: 'lookup', args: { n: 2 }, id: 'b' },
  ];
  expect(waiting.pending_tool_calls).toEqual([a, b]);
  const result = (tool_req: object, value: unknown) => ({ kind: 'tool_result', tool_req, result: value });
  expect((await session.post('tool_results', result({ tool_name: 'lookup', id: 'b' }, { found: 2 }))).status).toBe(202);
  expect(await session.status()).toMatchObject({ status: 'awaiting_tool_results', pending_tool_calls: [a] });
  // Twice, as a client does that has restarted, together with the one that is missing and has no id.
  const batch = {
    type: 'batch',
    results: [
      result({ tool_name: 'lookup', id: 'b' }, { found: 2 }),
      {
        kind: 'error_event',
        error: 'it is broken',
        origin: 'client',
        tool_req: { tool_name: 'lookup', args: { n: 1 } },
      },
    ],
  };
  expect((await session.post('tool_results', batch)).status).toBe(202);
  const { status, events } = await session.settle();
  expect(status.status).toBe('completed');
  const states = events.flatMap(({ type, data }) => (type === 'ActiveStateChangeEvent' ? [data] : []));
  expect(states).toEqual([
    { state: 'awaiting_tool_results', pending_tool_calls: [a, b] },
    { state: 'awaiting_tool_results', pending_tool_calls: [a] },
    { state: 'running', pending_tool_calls: null },
  ]);
  const answers = model
    .requestsTo('tools')
    .at(-1)
    ?.messages.filter(({ role }) => role === 'tool');
  expect(answers).toMatchObject([
    { tool_call_id: 'a', content: 'Error: it is broken' },
    { tool_call_id: 'b', content: '{"found":2}' },
  ]);
  expect((await session.post('tool_results', batch)).status).toBe(409);
});

test('a session of the Sessions API is read and followed here, and one of this API there', async () => {
  const { api, model } = server;
  const chat = await server.chat({ scripts: [use({ name: 'look', id: 'l1' }), say('I looked.')], spec: onTestServer });
  await chat.turn('Look.').end();
  const uuid = toUuid(chat.sessionId);
  const session = new AgentSession(api, uuid);
  const { status, events } = await session.settle();
  expect(status).toMatchObject({ status: 'idle', steps: 2 });
  expect(kindsOf(events)).toEqual([
    ...START,
    'message_event',
    'policy_event',
    'tool_result',
    'policy_event',
    'answer_event',
    'MetricsUpdateEvent',
    'ActiveStateChangeEvent',
  ]);
  chat.script(say('Still here.'));
  expect((await session.say('Are you there?')).status).toBe(202);
  expect((await session.settle(events.length)).events.at(-3)).toMatchObject({ data: { answer: 'Still here.' } });

  model.script('here', say('Here.'));
  const own = await AgentSession.create(api, { agent: agentNamed('here'), messages: 'Where?', idle_timeout_s: 60 });
  await own.settle();
  const id = fromUuid(own.id);
  const { data } = await api.get(`/v1/agents/sessions/${id}/turns`);
  expect(data).toMatchObject([{ state: { status: 'done', output: { content: 'Here.' } } }]);
});

test('what does not exist is a 404 with a body at once, what is malformed a 422 with its place', async () => {
  const { api } = server;
  const unknown = '/api/v2/sessions/0199a8d4-9d1c-7e32-8f5d-2f6a3c1b9e04';
  for (const path of ['', '/status', '/changes?wait_for_seconds=25', '/events']) {
    const { status, body } = await api.send('GET', unknown + path);
    expect([status, body.detail[0].type]).toEqual([404, 'session_not_found']);
  }
  const malformed: [string, string, unknown, (string | number)[]][] = [
    ['GET', '/api/v2/sessions/17', undefined, ['body', 'id']],
    ['GET', `${unknown}/changes?wait_for_seconds=26`, undefined, ['query', 'wait_for_seconds']],
    ['GET', `${unknown}/changes?from_index=true`, undefined, ['query', 'from_index']],
    ['POST', '/api/v2/sessions', {}, ['body', 'agent']],
    ['POST', '/api/v2/sessions', { agent: 'x', mesages: 'a' }, ['body']],
    ['POST', '/api/v2/sessions', '{', ['body']],
    ['POST', `${unknown}/messages`, { message: 'without a type' }, ['body', 'type']],
    ['POST', `${unknown}/messages`, { type: 'batch', messages: [], more: 1 }, ['body', 'messages']],
  ];
  for (const [method, path, body, loc] of malformed) {
    const answer = await api.send(method, path, body);
    expect([path, answer.status, answer.body.detail[0].loc]).toEqual([path, 422, loc]);
  }
});
