import { afterAll, beforeAll, expect, test } from 'vitest';
import { say, use, type Script } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';
import type { WireActivity } from '../../src/api/sessions/wire/activities.ts';
import type { WireSpan } from '../../src/api/sessions/wire/timeline.ts';
import { WORKER_IDENTITY } from '../../src/temporal/worker-identity.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'the sea' },
        { name: 'send', annotations: { destructiveHint: true }, handler: () => 'sent' },
      ],
    },
  });
});
afterAll(() => server.stop());

const fail: Script = (call) => call.fail(503, 'no capacity, sk: authorization="tok_1234567890abcdef"');

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
  const spans = await timeline(chat, turnId);
  expect(spans).toMatchObject([
    { kind: 'model_call', attempt: 1, pending: false, ...failed },
    { kind: 'model_call', attempt: 2, pending: false, ...failed },
    { kind: 'model_call', attempt: 3, pending: false, outcome: 'answered', tokens: { output: expect.any(Number) } },
  ]);
  const events = await server.api.list(`${chat.path}/turns/${turnId}/events`);
  expect(JSON.stringify(events)).not.toContain('activities');
});
