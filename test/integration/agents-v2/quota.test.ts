import { afterAll, beforeAll, expect, test } from 'vitest';
import { fromUuid } from '../../../src/api/agents-v2/session-ids.ts';
import { AgentSession, agentNamed } from '../../support/agents-v2.ts';
import { ApiClient } from '../../support/api-client.ts';
import { eventually } from '../../support/eventually.ts';
import { held } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Budgets of subjects in the Agents API v2, and the deletion of sessions after their end. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    env: {
      EVERTURN_API_KEYS: 'ann=key-of-ann,bob=key-of-bob,tom=key-of-tom',
      EVERTURN_SUBJECT_BUDGET: 'day:tokens=30',
    },
  });
});
afterAll(() => server.stop());

const as = (name: string) => new ApiClient(server.api.url, `key-of-${name}`);

test('a subject that has used up its tokens can neither create sessions nor start them again', async () => {
  const ann = as('ann');
  const day = new Date().toISOString().slice(0, 10);
  const next = new Date(Date.parse(day) + 86_400_000).toISOString();
  const window = { window_start: `${day}T00:00:00.000Z`, window_end: next };
  expect(await ann.get('/api/v2/quota/tokens')).toEqual({ limit: 30, used: 0, remaining: 30, ...window });
  const request = { agent: agentNamed('costly'), messages: 'Hi', idle_timeout_s: 600 };
  // Each call has 15 tokens.
  const session = await AgentSession.create(ann, request);
  await session.until('idle');
  expect(await ann.get('/api/v2/quota/tokens')).toMatchObject({ used: 15, remaining: 15 });
  expect((await session.say('more')).status).toBe(202);
  await session.until('idle');
  expect(await ann.get('/api/v2/quota/tokens')).toEqual({ limit: 30, used: 30, remaining: 0, ...window });
  const detail = { type: 'budget_exceeded', limit: 30, used: 30, window_end: next, message: expect.any(String) };
  for (const refused of [await ann.send('POST', '/api/v2/sessions', request), await session.say('again')]) {
    expect([refused.status, refused.body]).toEqual([402, { message: detail.message, detail }]);
  }
  expect((await session.status()).status).toBe('idle');
  expect(await ann.get('/api/v2/sessions')).toMatchObject({ total: 1 });
  expect((await as('bob').send('POST', '/api/v2/sessions', request)).status).toBe(201);
});

test('a session is deleted some time after its end, and never before', async () => {
  const tom = as('tom');
  const hold = held(
    () => undefined,
    (call) => call.finish(),
  );
  server.model.script('held', hold.script, hold.script);
  const create = (more: object) =>
    AgentSession.create(tom, { agent: agentNamed('short'), messages: 'Hi', delete_after_min: 1, ...more });
  const ended = await create({});
  const kept = await create({ delete_after_min: null, messages: null, idle_timeout_s: 600 });
  const running = await create({ agent: agentNamed('held') });
  const silent = await create({ messages: null });
  const [cancelled, gone] = [await create({ messages: null }), await create({ messages: null })];
  await tom.send('DELETE', cancelled.path);
  await tom.send('DELETE', gone.path);
  await tom.send('DELETE', kept.path);
  await ended.until('completed');
  const { rows } = server.database;
  const dueOf = async ({ id }: AgentSession) => {
    const row = rows.selectFrom('session_requests').select('delete_at').where('session_id', '=', fromUuid(id));
    return (await row.executeTakeFirst())?.delete_at;
  };
  const { finished_at: at } = await ended.get();
  await eventually(async () => expect(await dueOf(ended)).toBe(new Date(Date.parse(at ?? '') + 60_000).toISOString()));
  expect(await dueOf(cancelled)).not.toBeNull();
  expect([await dueOf(kept), await dueOf(running), await dueOf(silent)]).toEqual([null, null, null]);

  const statusesOf = (sessions: AgentSession[]) =>
    Promise.all(sessions.map(async ({ path }) => (await as('tom').send('GET', path)).status));
  // A minute later for some of them; the one that runs has ended before.
  const due = [ended, cancelled, running].map(({ id }) => fromUuid(id));
  const past = new Date(Date.now() - 1000).toISOString();
  await rows.updateTable('session_requests').set({ delete_at: past }).where('session_id', 'in', due).execute();
  await server.restart();
  await eventually(async () => expect(await statusesOf([ended, cancelled])).toEqual([404, 404]));
  expect(await statusesOf([kept, running, silent, gone])).toEqual([200, 200, 200, 200]);
  await eventually(async () => expect((await dueOf(running)) ?? '').toMatch(/./));
  expect(Date.parse((await dueOf(running)) ?? '')).toBeGreaterThan(Date.now());
  hold.release();
});
