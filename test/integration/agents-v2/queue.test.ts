import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from 'vitest';
import { fromUuid } from '../../../src/api/agents-v2/session-ids.ts';
import { Catalog } from '../../../src/features/catalog.ts';
import { loadConfig } from '../../../src/config.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { AgentSession, agentNamed, toldOf } from '../../support/agents-v2.ts';
import { eventually } from '../../support/eventually.ts';
import { held, say, textOf, use } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';
import { WebhookReceiver } from '../../support/webhook-receiver.ts';

/** The queue of the Agents API v2: this server has two slots. */

const LIMIT = 2;

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_AGENT_SESSIONS: String(LIMIT), EVERTURN_ALLOW_PRIVATE_URLS: 'true' },
  });
});
afterAll(() => server.stop());

let opened: AgentSession[] = [];
afterEach(async () => {
  for (const { path } of opened) await server.api.send('DELETE', path);
  opened = [];
  await eventually(async () => expect(await quota()).toMatchObject({ active: 0, available: LIMIT }));
});

const uniqueName = () => newId('req').replace('_', '-');
const quota = () => server.api.get('/api/v2/sessions/quota');

async function open(model: string, more: object = {}): Promise<AgentSession> {
  const session = await AgentSession.create(server.api, { agent: agentNamed(model), messages: `Hi ${model}`, ...more });
  opened.push(session);
  return session;
}

/** A session whose model does not answer before it is released. */
async function openHeld(more: object = {}) {
  const name = uniqueName();
  const answer = held(
    () => undefined,
    (call) => {
      call.text('done');
      call.finish();
    },
  );
  server.model.script(name, answer.script);
  return { name, session: await open(name, more), ...answer };
}

const statusOf = async (session: AgentSession) => (await session.status()).status;
const textsOf = (model: string) => server.model.requestsTo(model).map(({ messages }) => messages.map(textOf));

/** The catalog as a process has it that dies after its transaction. */
async function openCatalog(): Promise<Catalog> {
  const { database, encryptionKeys } = loadConfig({ DATABASE_URL: server.database.url });
  expect(encryptionKeys).toEqual([]);
  return Catalog.open(database, pino({ level: 'silent' }));
}

test('sessions beyond the limit wait, and begin in their order as others end', async () => {
  const sessions: Awaited<ReturnType<typeof openHeld>>[] = [];
  for (let i = 0; i < 5; i++) sessions.push(await openHeld());
  const statuses = () => Promise.all(sessions.map(({ session }) => statusOf(session)));
  await eventually(async () => expect(await statuses()).toEqual(['running', 'running', 'queued', 'queued', 'queued']));
  expect(await quota()).toEqual({ scope: 'org', limit: LIMIT, active: LIMIT, available: 0 });
  const [first, second, third, fourth, fifth] = sessions;
  const waiting = await server.api.get('/api/v2/sessions?status=queued&sort=created_at');
  expect(waiting.items).toMatchObject([third, fourth, fifth].map((one) => ({ id: one?.session.id, started_at: null })));
  second?.release();
  await third?.reached;
  expect(await statuses()).toEqual(['running', 'completed', 'running', 'queued', 'queued']);
  first?.release();
  await fourth?.reached;
  expect(await statuses()).toEqual(['completed', 'completed', 'running', 'running', 'queued']);
  third?.release();
  await fifth?.reached;
  for (const { release } of sessions) release();
  await eventually(async () => expect(new Set(await statuses())).toEqual(new Set(['completed'])));
  for (const { name } of sessions) expect(server.model.requestsTo(name)).toHaveLength(1);
});

test('at the limit, one that may not wait, and a child, are refused', async () => {
  const [parent] = [await openHeld(), await openHeld()];
  const request = { agent: agentNamed('refused'), messages: 'Hi' };
  const scoped = { message: expect.any(String), detail: [{ type: 'plan_limit', scope: 'org' }] };
  for (const more of [{ queue: false }, { parent_session_id: parent.session.id }]) {
    const { status, body, headers } = await server.api.send('POST', '/api/v2/sessions', { ...request, ...more });
    expect([status, body]).toMatchObject([429, scoped]);
    expect(headers.get('retry-after')).toBe('3');
  }
  expect(await server.api.get('/api/v2/sessions?status=queued')).toMatchObject({ total: 0 });
});

test('a sub-agent takes a slot and never waits for one: its parent is told that there is none', async () => {
  const [boss, helper] = [uniqueName(), uniqueName()];
  const args = { agent: helper, task: 'Help.' };
  const again = held(
    () => undefined,
    (call) => call.toolCall('delegate', args, 'second').finish(),
  );
  const help = held(
    () => undefined,
    (call) => call.text('helped').finish(),
  );
  server.model.script(boss, use({ name: 'delegate', args }), again.script, say('Done.'));
  server.model.script(helper, help.script);
  const blocker = await openHeld();
  const parent = await open(boss, { agent: agentNamed(boss, { subagents: [agentNamed(helper)] }) });
  await again.reached;
  expect(textsOf(boss)[1]?.at(-1)).toMatch(/^The task was not given to the agent: 2 sessions work or wait/);
  expect((await parent.status()).subagent_session_ids).toEqual([]);
  blocker.release();
  await eventually(async () => expect(await quota()).toMatchObject({ active: 1 }));
  again.release();
  await help.reached;
  expect(await quota()).toMatchObject({ active: 2 });
  const waiting = await openHeld();
  expect(await statusOf(waiting.session)).toBe('queued');
  help.release();
  expect((await parent.settle()).status).toMatchObject({
    status: 'completed',
    subagent_session_ids: [expect.any(String)],
  });
  await waiting.reached;
  expect(textsOf(boss)[2]?.at(-1)).toBe('helped');
});

test('a session in the queue keeps its messages, and its first turn has all of them, in order', async () => {
  const [blocker] = [await openHeld(), await openHeld()];
  const waiting = await openHeld();
  expect((await waiting.session.say('second')).status).toBe(202);
  const batch = { type: 'batch', messages: [{ message: 'third' }, { message: 'fourth', images: [PIXEL] }] };
  expect((await waiting.session.post('messages', batch)).status).toBe(202);
  for (const control of ['pause', 'resume', 'force_answer']) {
    expect((await waiting.session.post(control)).status).toBe(400);
  }
  expect(await waiting.session.changes('from_index=0')).toBeUndefined();
  expect(await statusOf(waiting.session)).toBe('queued');
  blocker.release();
  await waiting.reached;
  const [request] = server.model.requestsTo(waiting.name);
  const users = request?.messages.filter(({ role }) => role === 'user').map(({ content }) => JSON.stringify(content));
  const all = users?.join() ?? '';
  const places = [`Hi ${waiting.name}`, 'second', 'third', 'fourth', PIXEL].map((text) => all.indexOf(text));
  expect(places.every((place) => place >= 0)).toBe(true);
  expect(places).toEqual(places.toSorted((a, b) => a - b));
  await eventually(async () => expect(await inputsOf(waiting.session)).toEqual([{ input: null }, { input: null }]));
});

test('a message to a session in the queue is kept once per key of its call, however often that is repeated', async () => {
  const [blocker, other] = [await openHeld(), await openHeld()];
  const waiting = await openHeld();
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: { pin: '2026-07-28' } } });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${server.api.url}/mcp`)));
  const send = async (message: string, idempotency_key = 'k') => {
    const call = { name: 'send_message', arguments: { session_id: waiting.session.id, message, idempotency_key } };
    return (await client.callTool(call)) as { isError?: boolean; content: { text?: string }[] };
  };
  const results = await Promise.all([send('second'), send('second'), send('second'), send('third', 'k3')]);
  expect(results.filter(({ isError }) => isError)).toEqual([]);
  expect(await inputsOf(waiting.session)).toHaveLength(3);
  expect((await send('another')).content[0]?.text).toMatch(/^idempotency_key_reused/);
  // As after a crash between the claim of a key and the write.
  const rows = server.database.rows.deleteFrom('session_inputs').where('session_id', '=', fromUuid(waiting.session.id));
  await rows.where('number', '>', 1).execute();
  await send('second');
  await send('second');
  expect(await inputsOf(waiting.session)).toHaveLength(2);
  expect((await server.api.send('DELETE', waiting.session.path)).status).toBe(204);
  await send('second');
  expect(await statusOf(waiting.session)).toBe('interrupted');
  blocker.release();
  other.release();
  await eventually(async () => expect(await quota()).toMatchObject({ active: 0 }));
  await Promise.all([send('fourth', 'k4'), send('fourth', 'k4')]);
  await waiting.reached;
  await send('second');
  await send('fourth', 'k4');
  waiting.release();
  await waiting.session.until('completed');
  await send('fourth', 'k4');
  await client.close();
  const said = textsOf(waiting.name).map((texts) => texts.filter((text) => text !== ''));
  expect(said).toEqual([[`Hi ${waiting.name}`, 'second', 'fourth']]);
});

const inputsOf = (session: AgentSession) =>
  server.database.rows
    .selectFrom('session_inputs')
    .select('input')
    .where('session_id', '=', fromUuid(session.id))
    .execute();

const PIXEL =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

test('webhooks get the changes of sessions in the queue: that they begin, fail to, or are cancelled', async () => {
  const to = await WebhookReceiver.start();
  const webhook = await server.api.send('POST', '/api/v2/webhooks', { url: to.url });
  onTestFinished(async () => {
    await server.api.send('DELETE', `/api/v2/webhooks/${webhook.body.id}`);
    await to.stop();
  });
  const [blocker, other] = [await openHeld(), await openHeld()];
  const [first, second, third] = [await openHeld(), await openHeld(), await openHeld()];
  await server.api.send('DELETE', second.session.path);
  await server.api.send('POST', `/v1/agents/sessions/${fromUuid(third.session.id)}/cancel`, { close: true });
  blocker.release();
  await first.reached;
  other.release();
  await eventually(async () => expect((await second.session.say('again')).status).toBe(202));
  await second.reached;
  await eventually(() => {
    expect(toldOf(to, first.session.id)).toEqual(['queued', 'pending', 'running']);
    expect(toldOf(to, second.session.id)).toEqual(['queued', 'interrupted', 'pending', 'running']);
    expect(toldOf(to, third.session.id)).toEqual(['queued', 'pending', 'failed']);
  });
});

test('a session that is cancelled in the queue never begins; a message begins it, with those that it had', async () => {
  const [blocker, other] = [await openHeld(), await openHeld()];
  const cancelled = await openHeld();
  const next = await openHeld();
  expect((await server.api.send('DELETE', cancelled.session.path)).status).toBe(204);
  expect(await cancelled.session.get()).toMatchObject({
    status: { status: 'interrupted' },
    started_at: null,
    finished_at: expect.any(String),
  });
  // It cannot begin without a slot.
  expect((await cancelled.session.say('again')).status).toBe(429);
  blocker.release();
  await next.reached;
  expect(await statusOf(cancelled.session)).toBe('interrupted');
  expect(server.model.requestsTo(cancelled.name)).toEqual([]);
  other.release();
  await eventually(async () => expect((await cancelled.session.say('again')).status).toBe(202));
  await cancelled.reached;
  expect(await statusOf(cancelled.session)).toBe('running');
  expect(textsOf(cancelled.name)).toMatchObject([expect.arrayContaining([`Hi ${cancelled.name}`, 'again'])]);
});

test('a finished session takes a slot when a message starts it again, and is refused without one', async () => {
  const { session, release, name } = await openHeld();
  release();
  await session.until('completed');
  // Its slot is released when the end is archived.
  await eventually(async () => expect(await quota()).toMatchObject({ active: 0 }));
  const [blocker] = [await openHeld(), await openHeld()];
  const { status, body } = await session.say('more');
  expect([status, body]).toMatchObject([429, { detail: [{ type: 'plan_limit' }] }]);
  expect(await statusOf(session)).toBe('completed');
  blocker.release();
  await blocker.session.until('completed');
  await eventually(async () => expect((await session.say('more')).status).toBe(202));
  await session.until('completed');
  expect(
    textsOf(name)
      .at(-1)
      ?.filter((text) => text !== '')
      .slice(-3),
  ).toEqual([`Hi ${name}`, 'done', 'more']);
});

test('an idle session holds no slot, and a message to it runs above the limit; the next session waits for room', async () => {
  const again = held(
    () => undefined,
    (call) => call.text('two').finish(),
  );
  server.model.script('idle', say('one'), again.script);
  const idle = await open('idle', { idle_timeout_s: 3_600 });
  await idle.until('idle');
  await eventually(async () => expect(await quota()).toMatchObject({ active: 0, available: LIMIT }));
  const [first, second] = [await openHeld(), await openHeld()];
  expect((await idle.say('and?')).status).toBe(202);
  await again.reached;
  expect(await quota()).toEqual({ scope: 'org', limit: LIMIT, active: LIMIT + 1, available: 0 });
  const waiting = await openHeld();
  first.release();
  await eventually(async () => expect(await quota()).toMatchObject({ active: LIMIT }));
  expect(await statusOf(waiting.session)).toBe('queued');
  again.release();
  await waiting.reached;
  expect(await statusOf(idle)).toBe('idle');
  for (const { release } of [second, waiting]) release();
});

test('a session without messages takes its slot with the first one', async () => {
  await openHeld();
  await openHeld();
  const silent = await open('silent', { messages: null });
  expect(await statusOf(silent)).toBe('idle');
  expect((await silent.say('Hi')).status).toBe(429);
});

test('a session that a process has admitted and not started is started once by the next one', async () => {
  const blockers = [await openHeld(), await openHeld()];
  const [first, second] = [await openHeld(), await openHeld()];
  const sessionIds = [first, second].map(({ session }) => fromUuid(session.id));
  await server.server.stop();
  // Its last moments: it has noted the ends of both turns, and has died after the admission.
  const catalog = await openCatalog();
  const capacity = { limit: LIMIT + 2, perSubject: LIMIT + 2, now: new Date() };
  const turnIds = [newId('turn'), newId('turn')];
  const minted = [...turnIds];
  expect(await catalog.sessionSlots.admit(capacity, () => minted.shift() ?? '')).toEqual(sessionIds);
  await catalog.close();
  await server.restart();
  await Promise.all([first.reached, second.reached]);
  for (const { release } of [...blockers, first, second]) release();
  for (const { session } of [first, second]) await new AgentSession(server.api, session.id).until('completed');
  const turns = await server.database.rows
    .selectFrom('turns')
    .select('id')
    .where('session_id', 'in', sessionIds)
    .orderBy('id')
    .execute();
  expect(turns.map(({ id }) => id)).toEqual(turnIds.toSorted());
  for (const { name } of [first, second]) expect(textsOf(name)).toHaveLength(1);
  await eventually(async () => expect(await quota()).toMatchObject({ active: 0 }));
  opened = [];
});

test('many requests at once get no more slots than there are', async () => {
  const names = Array.from({ length: 12 }, () => uniqueName());
  const answers = names.map((name) => {
    const answer = held(
      () => undefined,
      (call) => {
        call.text('done');
        call.finish();
      },
    );
    server.model.script(name, answer.script);
    return answer;
  });
  const created = names.map((name, i) =>
    server.api.send('POST', '/api/v2/sessions', {
      agent: agentNamed(name),
      messages: 'Hi',
      queue: i % 3 !== 0,
    }),
  );
  const results = await Promise.all(created);
  const sessions = results.flatMap(({ status, body }) =>
    status === 201 ? [new AgentSession(server.api, body.id)] : [],
  );
  expect(results.every(({ status }) => status === 201 || status === 429)).toBe(true);
  opened.push(...sessions);
  const active: number[] = [(await quota()).active];
  for (const { release } of answers) release();
  for (const session of sessions) {
    await session.until('completed');
    active.push((await quota()).active);
  }
  expect(Math.max(...active)).toBe(LIMIT);
  expect(sessions.length).toBeGreaterThanOrEqual(8);
});
