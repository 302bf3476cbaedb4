import { afterAll, beforeAll, expect, test } from 'vitest';
import { say, use, type Script } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';
import { openRows } from '../support/test-database.ts';
import type { WireActivity } from '../../src/api/sessions/wire/activities.ts';
import type { WireSpan } from '../../src/api/sessions/wire/timeline.ts';
import { WORKER_IDENTITY } from '../../src/temporal/worker-identity.ts';

let server: TestServer;
let rows: ReturnType<typeof openRows>;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'the sea' },
        { name: 'send', annotations: { destructiveHint: true }, handler: () => 'sent' },
      ],
    },
  });
  rows = openRows(server.database.url);
});
afterAll(async () => {
  await rows.destroy();
  await server.stop();
});

const fail: Script = (call) => call.fail(503, 'no capacity for Bearer tok_1234567890abcdef');

async function timeline(chat: Chat, turnId: string): Promise<WireSpan[]> {
  return server.api.list(`${chat.path}/turns/${turnId}/timeline`);
}

async function activitiesOf(chat: Chat, turnId: string): Promise<WireActivity[]> {
  const events: { activities?: WireActivity[] }[] = await server.api.list(
    `${chat.path}/turns/${turnId}/events?view=full`,
  );
  return events.flatMap(({ activities = [] }) => activities);
}

test('a model call that fails twice has three attempts in its event and in the timeline', async () => {
  const chat = await server.chat({ scripts: [fail, fail, say('hello')] });
  const reader = chat.turn('hi');
  expect(await reader.end()).toMatchObject({ status: 'done' });
  const turnId = await reader.turnId();
  const called = { provider: 'openai', model: chat.agent, address: new URL(server.model.url).host };
  const failed = {
    worker: WORKER_IDENTITY,
    outcome: 'failed',
    failure: 'overloaded',
    reason: expect.stringMatching(/answered 503: no capacity/),
    started_at: expect.any(String),
    ended_at: expect.any(String),
    ...called,
  };
  const [activity] = await activitiesOf(chat, turnId);
  expect(activity).toMatchObject({
    kind: 'model_call',
    thread_id: 'main',
    attempts: [
      { number: 1, ...failed },
      { number: 2, ...failed },
      { number: 3, worker: WORKER_IDENTITY, outcome: 'completed', ...called },
    ],
  });
  expect(JSON.stringify(activity)).not.toContain('tok_1234567890abcdef');
  expect((await server.api.get(`${chat.path}/turns/${turnId}`)).data.state).not.toHaveProperty('retrying');
  const spans = await timeline(chat, turnId);
  expect(spans).toMatchObject([
    { kind: 'model_call', attempt: 1, pending: false, ...failed },
    { kind: 'model_call', attempt: 2, pending: false, ...failed },
    { kind: 'model_call', attempt: 3, pending: false, outcome: 'answered', tokens: { output: expect.any(Number) } },
  ]);
  const events = await server.api.list(`${chat.path}/turns/${turnId}/events`);
  expect(JSON.stringify(events)).not.toContain('activities');
});

test('while a call is repeated, the state of its turn, its timeline and its full stream say so', async () => {
  // Longer than the test takes, which cancels the turn.
  const unavailable: Script = (call) => call.fail(503, 'no capacity', { 'retry-after': '120' });
  const chat = await server.chat({ scripts: [unavailable] });
  const reader = chat.turn('hi');
  const turnId = await reader.turnId();
  const full = server.api.stream(`${chat.path}/turns/${turnId}/subscribe?view=full`, {});
  const read = async () => (await server.api.get(`${chat.path}/turns/${turnId}`)).data.state;
  const provider = 'openai';
  await expect.poll(read).toMatchObject({
    status: 'running',
    retrying: { since: expect.any(String), provider, reason: expect.stringContaining('no capacity') },
  });
  const {
    data: [inList],
  } = await server.api.get(`${chat.path}/turns`);
  expect(inList.state).toMatchObject({ status: 'running', retrying: { provider } });
  expect(await timeline(chat, turnId)).toMatchObject([
    { kind: 'model_call', attempt: 1, outcome: 'failed', failure: 'overloaded', pending: false, provider },
    { kind: 'model_call', attempt: 2, started_at: null, pending: true },
  ]);
  expect((await server.api.send('POST', `${chat.path}/cancel`, {})).status).toBe(200);
  expect(await reader.end()).toMatchObject({ status: 'cancelled' });
  const state = await read();
  expect(state).toMatchObject({ status: 'cancelled' });
  expect(state).not.toHaveProperty('retrying');
  const kinds = (await reader.done).map(({ type }) => type);
  expect(kinds).not.toContain('turn.retrying');
  const last = (await full.done).at(-1);
  expect(last?.type).toBe('turn.done');
});

test('readers with view=full get a failed attempt when it fails', async () => {
  const [failing, answering] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const chat = await server.chat({
    scripts: [
      async (call) => {
        await failing.promise;
        await fail(call);
      },
      async (call) => {
        await answering.promise;
        await say('hello')(call);
      },
    ],
  });
  const reader = server.api.stream(`${chat.path}/turns?view=full`, {
    input: [{ type: 'user.message', content: 'hi' }],
  });
  await reader.type('turn.created');
  failing.resolve();
  expect(await reader.type('turn.retrying')).toMatchObject({
    thread_id: 'main',
    message_id: expect.stringMatching(/^msg_/),
    attempt: { number: 1, outcome: 'failed', failure: 'overloaded', provider: 'openai', model: chat.agent },
  });
  answering.resolve();
  expect(await reader.end()).toMatchObject({ status: 'done' });
  const message = (await reader.done).find((event) => event.type === 'model.message.delta' && event.finish_reason);
  expect(message).toMatchObject({ activities: [{ kind: 'model_call', attempts: [{ number: 1 }, { number: 2 }] }] });
});

test('a turn that was archived has the timeline that it had, with its tools and who was waited for', async () => {
  const chat = await server.chat({
    scripts: [fail, use({ name: 'look' }, { name: 'send' }), say('done')],
    spec: { ...onTestServer, config: { pause: 'wait' } },
  });
  const reader = chat.turn('go');
  const {
    tool_calls: [asked],
  } = await reader.type('tool.approval_required');
  const turnId = await reader.turnId();
  const open = (await timeline(chat, turnId)).find(({ waits_for }) => waits_for === 'approval');
  expect(open).toMatchObject({ kind: 'wait', waited_for: 'person', pending: true, ended_at: null });
  const approval = {
    type: 'user.tool_approval',
    thread_id: 'main',
    tool_call_id: asked?.id,
    approval: { status: 'allow' },
  };
  await server.api.send('POST', `${chat.path}/actions`, { input: [approval] });
  expect(await reader.end()).toMatchObject({ status: 'done' });
  const before = await timeline(chat, turnId);
  const row = rows.selectFrom('turns').select('archived').where('id', '=', turnId);
  await expect.poll(() => row.executeTakeFirst()).toEqual({ archived: 1 });
  await server.restart();
  const spans = await timeline(chat, turnId);
  expect(spans).toEqual(before);
  const person = { subject_id: expect.any(String) };
  expect(
    spans.map(({ kind, attempt, outcome, tool, waits_for }) => [kind, attempt, outcome, tool ?? waits_for]),
  ).toEqual(
    expect.arrayContaining([
      ['model_call', 1, 'failed', undefined],
      ['model_call', 2, 'answered', undefined],
      ['wait', undefined, 'allow', 'approval'],
      ['tool_call', 1, 'succeeded', 'send'],
      ['model_call', 1, 'answered', undefined],
    ]),
  );
  expect(spans.find(({ waits_for }) => waits_for === 'approval')).toMatchObject({ ended_by: person, pending: false });
  expect(spans.find(({ tool }) => tool === 'send')).toMatchObject({ server: 'test', worker: WORKER_IDENTITY });
});

test('the timeline is for those who may read the turn', async () => {
  const chat = await server.chat({ scripts: [say('hello')] });
  const reader = chat.turn('hi');
  await reader.end();
  const other = await server.chat();
  expect(await server.api.send('GET', `${other.path}/turns/${await reader.turnId()}/timeline`)).toMatchObject({
    status: 404,
    body: { error: { code: 'turn_not_found' } },
  });
});
