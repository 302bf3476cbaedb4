import { afterAll, beforeAll, expect, test } from 'vitest';
import { toUuid } from '../../../src/api/agents-v2/session-ids.ts';
import { AgentSession, agentNamed } from '../../support/agents-v2.ts';
import { ApiClient } from '../../support/api-client.ts';
import { say } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

let server: TestServer;
let ann: ApiClient;
let bob: ApiClient;
let everyone: ApiClient;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann,bob:user=key-of-bob', EVERTURN_REQUESTS_PER_MINUTE: '1000' },
  });
  const { url } = server.api;
  [ann, bob, everyone] = [new ApiClient(url, 'key-of-ann'), new ApiClient(url, 'key-of-bob'), new ApiClient(url)];
});
afterAll(() => server.stop());

const agent = agentNamed('desk', { instructions: 'The discount code is 4711.' });

async function newSession(api: ApiClient): Promise<string> {
  server.model.script('desk', say('Orders 17 and 23.'));
  const session = await AgentSession.create(api, { agent, messages: 'Which are late?', group_id: 'secret-group' });
  await session.settle();
  return session.path;
}

/** The reads that a session's sharing allows. */
const READS = ['', '/status', '/changes', '/events'];

async function statuses(api: ApiClient, session: string): Promise<number[]> {
  return Promise.all(READS.map(async (path) => (await api.send('GET', session + path)).status));
}

test('a shared session can be read by everyone, without its owner and the definition of its agent', async () => {
  const session = await newSession(bob);
  expect(await statuses(everyone, session)).toEqual([401, 401, 401, 401]);

  const { status, body } = await bob.send('POST', `${session}/share`);
  expect([status, body]).toEqual([
    200,
    { share_url: session.replace('/api/v2/sessions', '/share/api/v1/trajectories') },
  ]);
  expect(await statuses(everyone, session)).toEqual([200, 200, 200, 200]);
  const shown = await everyone.get(session);
  expect(shown).toMatchObject({
    latest_answer: 'Orders 17 and 23.',
    request: { agent: { name: 'desk' }, messages: [{ message: 'Which are late?' }] },
  });
  expect(JSON.stringify([shown, await everyone.get(`${session}/events`)])).not.toMatch(/4711|secret-group|bob/);
  expect(JSON.stringify(await bob.get(session))).toMatch(/4711/);
  // The link leads to it.
  const linked = await fetch(everyone.url + body.share_url);
  expect([linked.status, linked.url]).toEqual([200, everyone.url + session]);

  // Nothing else than reading.
  expect((await everyone.send('DELETE', session)).status).toBe(401);
  expect((await everyone.send('POST', `${session}/messages`, { type: 'user_message', message: 'Hi' })).status).toBe(
    401,
  );
  expect((await everyone.send('DELETE', `${session}/share`)).status).toBe(401);

  expect((await bob.send('DELETE', `${session}/share`)).status).toBe(204);
  expect(await statuses(everyone, session)).toEqual([401, 401, 401, 401]);
  expect((await bob.send('DELETE', `${session}/share`)).status).toBe(204);
});

test('only the owner shares a session, and a wrong key reads nothing', async () => {
  const session = await newSession(bob);
  const carl = await newSession(ann);
  // An admin reads it, and may not share it.
  expect((await ann.send('GET', session)).status).toBe(200);
  for (const [api, path] of [
    [ann, session],
    [bob, carl],
  ] as const) {
    expect((await api.send('POST', `${path}/share`)).status).toBe(404);
    expect((await api.send('DELETE', `${path}/share`)).status).toBe(404);
  }
  await ann.send('POST', `${carl}/share`);
  expect(await statuses(new ApiClient(server.api.url, 'unknown'), carl)).toEqual([401, 401, 401, 401]);
  expect(await statuses(bob, carl)).toEqual([200, 200, 200, 200]);
  expect(JSON.stringify(await bob.get(carl))).not.toMatch(/4711/);
});

test('a session of the Sessions API can be shared; a deleted one is readable for none', async () => {
  const name = 'first-face';
  server.model.script(name, say('Hello.'));
  await ann.putAgent(name, { model: { name } });
  const sessionId = await bob.createSession(name);
  await bob.turn(sessionId, 'Hi').end();
  const session = `/api/v2/sessions/${toUuid(sessionId)}`;
  expect((await bob.send('POST', `${session}/share`)).status).toBe(200);
  expect(await statuses(everyone, session)).toEqual([200, 200, 200, 200]);
  expect((await bob.send('DELETE', `/v1/agents/sessions/${sessionId}`)).status).toBe(204);
  expect(await statuses(everyone, session)).toEqual([401, 401, 401, 401]);
});

test('reads without a key are limited by their address', async () => {
  const session = await newSession(bob);
  await bob.send('POST', `${session}/share`);
  await server.restart({ EVERTURN_REQUESTS_PER_MINUTE: '5' });
  const reader = new ApiClient(server.api.url);
  const answers: number[] = [];
  for (let i = 0; i < 7; i++) answers.push((await reader.send('GET', `${session}/status`)).status);
  expect(answers).toEqual([200, 200, 200, 200, 200, 429, 429]);
});
