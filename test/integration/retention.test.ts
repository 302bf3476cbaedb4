import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
});
afterAll(() => server.stop());

const DAY_MS = 86_400_000;
const keptFor = (days: number) => ({ config: { retention_days: days } });

/** Makes these sessions appear to have been idle for this many days. */
async function letPass(days: number, ...sessionIds: string[]): Promise<void> {
  const at = new Date(Date.now() - days * DAY_MS).toISOString();
  await server.database.rows.updateTable('sessions').set({ active_at: at }).where('id', 'in', sessionIds).execute();
}

async function idleDays(sessionId: string): Promise<number> {
  const { rows } = server.database;
  const { active_at: at } = await rows
    .selectFrom('sessions')
    .select('active_at')
    .where('id', '=', sessionId)
    .executeTakeFirstOrThrow();
  return (Date.now() - Date.parse(at)) / DAY_MS;
}

const exists = async (id: string) => (await server.api.send('GET', `/v1/agents/sessions/${id}/turns`)).status === 200;
const existing = async (ids: string[]) => Promise.all(ids.map(exists));

/** Runs a turn and waits until it is archived: nothing happens after that. */
async function talk(chat: Chat): Promise<void> {
  const reader = chat.turn('hi');
  await reader.done;
  const id = await reader.turnId();
  const { rows } = server.database;
  const turn = () => rows.selectFrom('turns').selectAll().where('id', '=', id).executeTakeFirst();
  await expect.poll(turn).toMatchObject({ archived: 1 });
}

test('sessions are deleted when they have been idle for as long as their agent keeps them', async () => {
  const [idle, busy, unlimited] = [
    await server.chat({ spec: keptFor(7) }),
    await server.chat({ spec: keptFor(7) }),
    await server.chat(),
  ];
  for (const chat of [idle, busy, unlimited]) await talk(chat);
  const ids = [idle, busy, unlimited].map(({ sessionId }) => sessionId);
  await letPass(8, idle.sessionId, unlimited.sessionId);
  await letPass(6, busy.sessionId);
  await server.restart();
  await expect.poll(() => existing(ids)).toEqual([false, true, true]);
  // As completely as by DELETE.
  const { rows } = server.database;
  const turns = () => rows.selectFrom('turns').selectAll().where('session_id', '=', idle.sessionId).execute();
  await expect.poll(turns).toEqual([]);
  // A turn is an activity of the session.
  await letPass(6.9, busy.sessionId);
  await talk(busy);
  expect(await idleDays(busy.sessionId)).toBeLessThan(1);
});

test("the newest version of an agent decides, then each session's own, and for a draft its spec", async () => {
  const model = { name: newId('req') };
  const [kept, dropped, gone] = [newId('req'), newId('req'), newId('req')];
  await server.api.putAgent(kept, { model, ...keptFor(1) });
  const underOldRule = await server.api.createSession(kept);
  await server.api.putAgent(kept, { model });
  await server.api.putAgent(dropped, { model });
  const underNewRule = await server.api.createSession(dropped);
  await server.api.putAgent(dropped, { model, ...keptFor(1) });
  await server.api.putAgent(gone, { model, ...keptFor(1) });
  const orphan = await server.api.createSession(gone);
  await server.api.putAgent(gone, { model });
  const unlimitedOrphan = await server.api.createSession(gone);
  await server.api.send('DELETE', `/v1/agents/${gone}`);
  const draftOf = async (spec: object): Promise<string> =>
    (await server.api.send('POST', '/v1/agents/draft-sessions', { agent_spec: { model, ...spec } })).body.data.id;
  const [draft, unlimitedDraft] = [await draftOf(keptFor(1)), await draftOf({})];
  const ids = [underOldRule, underNewRule, orphan, unlimitedOrphan, draft, unlimitedDraft];
  await letPass(2, ...ids);
  await server.restart();
  await expect.poll(() => existing(ids)).toEqual([true, false, false, true, false, true]);
});

test('a session that waits for a human is kept until it is closed, and one with a running turn is kept too', async () => {
  const pausing = { ...onTestServer, ...keptFor(1) };
  const waits = await server.chat({ scripts: [use({ name: 'write', id: 'w1' })], spec: pausing });
  await talk(waits);
  // It waits on a branch that the conversation has left.
  const forked = await server.chat({ scripts: [use({ name: 'write', id: 'w1' }), say('else')], spec: pausing });
  await talk(forked);
  await forked.turn('else', { previous_turn_id: 'none' }).done;
  const closed = await server.chat({ scripts: [use({ name: 'write', id: 'w1' })], spec: pausing });
  await talk(closed);
  await server.api.send('POST', `${closed.path}/cancel`, { close: true });
  const [first, second] = [1, 2].map(() =>
    held(
      (call) => call.text('I think'),
      (call) => call.finish(),
    ),
  );
  const runs = await server.chat({ scripts: [first?.script ?? say(''), second?.script ?? say('')], spec: pausing });
  const reader = runs.turn('think');
  await reader.says('I think');
  const ids = [waits, forked, closed, runs].map(({ sessionId }) => sessionId);
  await letPass(3, ...ids);
  await server.restart();
  first?.release();
  await expect.poll(() => exists(closed.sessionId)).toBe(false);
  // Waiting and working are activity.
  for (const { sessionId } of [waits, forked, runs]) {
    await expect.poll(() => idleDays(sessionId)).toBeLessThan(1);
  }
  expect(await existing(ids)).toEqual([true, true, false, true]);
  second?.release();
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  expect(await server.api.turn(waits.sessionId, [approval]).end()).toMatchObject({ status: 'done' });
});

test('a session that waits for a human is kept when a restored catalog does not have its turn', async () => {
  const pausing = { ...onTestServer, ...keptFor(1) };
  const chat = await server.chat({ scripts: [use({ name: 'write', id: 'w1' }), say('Written.')], spec: pausing });
  await talk(chat);
  const { rows } = server.database;
  const { id } = await rows
    .selectFrom('turns')
    .select('id')
    .where('session_id', '=', chat.sessionId)
    .executeTakeFirstOrThrow();
  await rows.deleteFrom('turns').where('id', '=', id).execute();
  await rows.deleteFrom('archive').where('turn_id', '=', id).execute();
  await letPass(3, chat.sessionId);
  await server.restart();
  await expect.poll(() => idleDays(chat.sessionId)).toBeLessThan(1);
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  expect(await chat.turn([approval]).end()).toMatchObject({ status: 'done', output: { content: 'Written.' } });
});

test('the spec of a draft is deleted when no turn can use it any more', async () => {
  const [was, is] = [newId('req'), newId('req')];
  const draft = '/v1/agents/draft-sessions';
  const spec = (name: string) => ({ agent_spec: { model: { name } } });
  const { id } = (await server.api.send('POST', draft, spec(was))).body.data;
  await server.api.send('PATCH', `${draft}/${id}`, spec(is));
  const { rows } = server.database;
  const known = async () => {
    const specs = await rows.selectFrom('specs').select('spec').execute();
    return [was, is].map((name) => specs.some((row) => row.spec.includes(name)));
  };
  expect(await known()).toEqual([true, true]);
  const before = new Date(Date.now() - 3 * DAY_MS).toISOString();
  await rows.updateTable('specs').set({ unused_since: before }).execute();
  await server.restart();
  await expect.poll(known).toEqual([false, true]);
});
