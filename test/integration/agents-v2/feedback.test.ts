import { afterAll, beforeAll, expect, test } from 'vitest';
import { fromUuid } from '../../../src/api/agents-v2/session-ids.ts';
import { AgentSession, agentNamed } from '../../support/agents-v2.ts';
import { ApiClient } from '../../support/api-client.ts';
import { eventually } from '../../support/eventually.ts';
import { say } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

let server: TestServer;
let ann: ApiClient;
let bob: ApiClient;
let session: string;
let path: string;
beforeAll(async () => {
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann,bob:user=key-of-bob' } });
  [ann, bob] = [new ApiClient(server.api.url, 'key-of-ann'), new ApiClient(server.api.url, 'key-of-bob')];
  server.model.script('desk', say('Done.'));
  const created = await AgentSession.create(bob, { agent: agentNamed('desk'), messages: 'Hi' });
  await created.settle();
  [session, path] = [created.id, created.path];
});
afterAll(() => server.stop());

const stored = () =>
  server.database.rows
    .selectFrom('session_feedback')
    .select(['place', 'success'])
    .where('session_id', '=', fromUuid(session))
    .orderBy('place')
    .execute();

test('the latest feedback on a session and on each of its events counts', async () => {
  const { total } = await bob.get<{ total: number }>(`${path}/events`);
  for (const [method, place, success] of [
    ['POST', '/feedback', false],
    ['POST', '/feedback', true],
    ['PUT', '/events/0/feedback', true],
    ['PUT', `/events/${total - 1}/feedback`, true],
    ['PUT', `/events/${total - 1}/feedback`, false],
  ] as const) {
    expect((await bob.send(method, path + place, { success, message: 'Because.' })).status).toBe(204);
  }
  expect(await stored()).toEqual([
    { place: -1, success: 1 },
    { place: 0, success: 1 },
    { place: total - 1, success: 0 },
  ]);
});

test('feedback is rejected from others, on missing events, and if it is too long', async () => {
  const { total } = await bob.get<{ total: number }>(`${path}/events`);
  const before = await stored();
  const unknown = '/api/v2/sessions/0199a8d4-9d1c-7e32-8f5d-2f6a3c1b9e04';
  for (const [api, method, to, body, status] of [
    [ann, 'POST', `${path}/feedback`, { success: true }, 404],
    [ann, 'PUT', `${path}/events/0/feedback`, { success: true }, 404],
    [bob, 'POST', `${unknown}/feedback`, { success: true }, 404],
    [bob, 'PUT', `${path}/events/${total}/feedback`, { success: true }, 404],
    [bob, 'PUT', `${path}/events/-1/feedback`, { success: true }, 404],
    [bob, 'PUT', `${path}/events/first/feedback`, { success: true }, 422],
    [bob, 'POST', `${path}/feedback`, { message: 'no verdict' }, 422],
    [bob, 'POST', `${path}/feedback`, { success: true, message: 'x'.repeat(10_001) }, 422],
  ] as const) {
    expect((await api.send(method, to, body)).status, `${method} ${to}`).toBe(status);
  }
  expect(await stored()).toEqual(before);
});

test('feedback is removed with its session', async () => {
  expect(await stored()).not.toEqual([]);
  await bob.send('DELETE', `/v1/agents/sessions/${fromUuid(session)}`);
  await eventually(async () => expect(await stored()).toEqual([]));
});
