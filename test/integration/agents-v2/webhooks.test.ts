import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import type { WebhookRecord } from '../../../src/api/agents-v2/wire/webhooks.ts';
import { fromUuid, toUuid } from '../../../src/api/agents-v2/session-ids.ts';
import { Catalog } from '../../../src/features/catalog.ts';
import { loadConfig } from '../../../src/config.ts';
import { Cipher } from '../../../src/encryption/cipher.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { AgentSession, agentNamed, received, toldOf } from '../../support/agents-v2.ts';
import { ApiClient } from '../../support/api-client.ts';
import { eventually } from '../../support/eventually.ts';
import { pythonWith } from '../../support/python.ts';
import { held, say, ScriptedModel, use, type ModelCall } from '../../support/scripted-model.ts';
import { ServerProcess } from '../../support/server-process.ts';
import { openRows } from '../../support/test-database.ts';
import { onTestServer, startTestServer, type TestServer } from '../../support/test-server.ts';
import { WebhookReceiver } from '../../support/webhook-receiver.ts';

const run = promisify(execFile);

let server: TestServer;
let admin: ApiClient;
let ann: ApiClient;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann', EVERTURN_ALLOW_PRIVATE_URLS: 'true' },
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
  connect();
});
afterAll(() => server.stop());

function connect(): void {
  admin = new ApiClient(server.server.url, 'key-of-root');
  ann = new ApiClient(server.server.url, 'key-of-ann');
}

type Registered = WebhookRecord & { secret: string };

/** Registers a webhook until the end of the test. */
async function register(url: string, more: object = {}): Promise<Registered> {
  const { status, body } = await admin.send<Registered>('POST', '/api/v2/webhooks', { url, ...more });
  expect(status, JSON.stringify(body)).toBe(201);
  onTestFinished(async () => void (await admin.send('DELETE', `/api/v2/webhooks/${body.id}`)));
  return body;
}

async function receiver(): Promise<WebhookReceiver> {
  const one = await WebhookReceiver.start();
  onTestFinished(() => one.stop());
  return one;
}

const lookup = { name: 'lookup', description: 'looks it up' };
const result = { kind: 'tool_result', tool_req: { tool_name: 'lookup', id: 'a' }, result: 1 };

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

test('each change of the status is sent once, in order, with the status before it', async () => {
  const to = await receiver();
  await register(to.url);
  // Changes before the next write to the catalog are one change: each answer waits until the one before was sent.
  let id = '';
  const after = (count: number, answer: (call: ModelCall) => unknown) => async (call: ModelCall) => {
    await eventually(() => expect(toldOf(to, id)).toHaveLength(count));
    await answer(call);
  };
  server.model.script(
    'told',
    after(2, use({ name: 'lookup', id: 'a' })),
    after(4, say('Yes.')),
    after(6, say('Again.')),
    after(8, (call) => call.fail(400, 'no')),
  );
  const agent = agentNamed('told', { tools: [lookup] });
  const session = await AgentSession.create(ann, { agent, messages: 'Is it late?' });
  ({ id } = session);
  await session.until('awaiting_tool_results');
  await eventually(() => expect(toldOf(to, session.id)).toEqual(['pending', 'running', 'awaiting_tool_results']));
  await session.post('tool_results', result);
  const { events } = await session.settle();
  await session.say('And now?');
  const more = await session.settle(events.length);
  await session.say('Fail.');
  await session.settle(events.length + more.events.length);
  await eventually(() =>
    expect(toldOf(to, session.id)).toEqual([
      'pending',
      'running',
      'awaiting_tool_results',
      'running',
      'completed',
      'running',
      'completed',
      'running',
      'failed',
    ]),
  );
  const messages = received(to);
  expect(new Set(messages.map(({ id }) => id)).size).toBe(messages.length);
  expect(messages[0]).toEqual({
    type: 'session.status_updated',
    id: expect.stringMatching(/^evt_/),
    created_at: expect.any(String),
    data: { session_id: session.id, status: 'running', previous_status: 'pending' },
  });
  expect(to.requests[0]?.headers).toMatchObject({
    'content-type': 'application/json',
    'x-h-webhook-timestamp': expect.stringMatching(/^\d{10}$/),
    'x-h-webhook-signature': expect.stringMatching(/^sha256=[\da-f]{64}$/),
  });
});

test('webhooks get nothing about runs', async () => {
  const to = await receiver();
  await register(to.url);
  server.model.script('of-a-run', say('Done.'), say('Done.'));
  const body = { agent: { model: 'of-a-run' }, input: [{ type: 'message', role: 'user', content: 'Go' }] };
  const { body: done } = await ann.send('POST', '/v1/runs', body);
  expect(done).toMatchObject({ status: 'completed' });
  const session = await AgentSession.create(ann, { agent: agentNamed('of-a-run'), messages: 'Go' });
  await session.settle();
  await eventually(() => expect(toldOf(to, session.id)).toEqual(['pending', 'running', 'completed']));
  expect(new Set(received(to).map(({ data }) => data.session_id))).toEqual(new Set([session.id]));
});

test('the statuses of a sub-agent are sent, to its end', async () => {
  const to = await receiver();
  await register(to.url);
  server.model.script('asker', use({ name: 'delegate', args: { agent: 'helper', task: 'Help.' } }), say('Helped.'));
  server.model.script('helper', say('Yes.'));
  const agent = agentNamed('asker', { subagents: [agentNamed('helper')] });
  const session = await AgentSession.create(ann, { agent, messages: 'Ask.' });
  const { subagent_session_ids: ids } = (await session.settle()).status;
  expect(ids).toHaveLength(1);
  for (const id of [session.id, ...ids]) {
    await eventually(() => expect(toldOf(to, id)).toEqual(['pending', 'running', 'completed']));
  }
});

/** Until webhooks get it, nothing else depends on it. */
async function endIdleTimeout({ id }: AgentSession): Promise<void> {
  const idle = server.database.rows
    .updateTable('session_requests')
    .set({ idle_ends_at: '2026-01-01T00:00:00.000Z' })
    .where('session_id', '=', fromUuid(id))
    .where('idle_ends_at', 'is not', null);
  // It is written when the end of the turn is archived.
  await eventually(async () => expect((await idle.executeTakeFirst()).numUpdatedRows).toBe(1n));
}

test('the end of an idle timeout is sent once, unless a message has come before', async () => {
  const to = await receiver();
  await register(to.url);
  const answer = gate('Two.');
  server.model.script('resting', say('One.'), answer.script, say('Three.'));
  const created = await AgentSession.create(ann, {
    agent: agentNamed('resting'),
    messages: 'Hi',
    idle_timeout_s: 86_400,
  });
  await created.until('idle');
  const told = (...statuses: string[]) => eventually(() => expect(toldOf(to, created.id)).toEqual(statuses));
  await told('pending', 'running', 'idle');
  const pass = () => endIdleTimeout(created);
  const { database, encryptionKeys } = loadConfig({ ...process.env, DATABASE_URL: server.database.url });
  const log = pino({ level: 'silent' });
  const catalog = await Catalog.open(database, log, new Cipher(encryptionKeys));
  onTestFinished(() => catalog.close());
  const tell = () => catalog.idleTimeouts.end(new Date().toISOString(), new AbortController().signal);
  await tell();
  await created.say('And?');
  await answer.reached;
  await pass();
  await tell();
  answer.release();
  await created.until('idle');
  await told('pending', 'running', 'idle', 'running', 'idle');
  await pass();
  await Promise.all([tell(), tell()]);
  await created.say('More?');
  await created.until('idle');
  await told('pending', 'running', 'idle', 'running', 'idle', 'completed', 'running', 'idle');
});

test('a pause on request is sent while the turn runs, and so is its end', async () => {
  const to = await receiver();
  await register(to.url, { enabled_events: ['session.status_updated'] });
  const step = held(
    () => undefined,
    (call) => {
      call.toolCall('lookup', {}, 'a');
      call.finish();
    },
  );
  const answer = gate('Done.');
  server.model.script('paused', step.script, answer.script);
  const agent = agentNamed('paused', { tools: [lookup] });
  const session = await AgentSession.create(ann, { agent, messages: 'Hi', idle_timeout_s: 600 });
  await step.reached;
  await session.post('pause');
  step.release();
  await eventually(() => expect(toldOf(to, session.id)).toEqual(['pending', 'running', 'paused']));
  await session.post('tool_results', result);
  await session.post('resume');
  await answer.reached;
  await eventually(() => expect(toldOf(to, session.id)).toEqual(['pending', 'running', 'paused', 'running']));
  answer.release();
  await eventually(() => expect(toldOf(to, session.id).slice(-2)).toEqual(['running', 'idle']));
});

test('cancellations are sent: of a running session with the end of its turn, of an idle one at once', async () => {
  const to = await receiver();
  await register(to.url);
  const answer = gate('Never read.');
  server.model.script('cancelled', answer.script, say('Again.'), say('And again.'));
  const agent = agentNamed('cancelled');
  const session = await AgentSession.create(ann, { agent, messages: 'One', idle_timeout_s: 600 });
  await answer.reached;
  expect((await ann.send('DELETE', session.path)).status).toBe(204);
  const { events } = await session.settle();
  answer.release();
  await session.say('Two');
  await session.settle(events.length);
  await Promise.all([ann.send('DELETE', session.path), ann.send('DELETE', session.path)]);
  await session.until('interrupted');
  await session.say('Three');
  await session.until('idle');
  await eventually(() =>
    expect(toldOf(to, session.id)).toEqual([
      'pending',
      'running',
      'interrupted',
      'running',
      'idle',
      'interrupted',
      'running',
      'idle',
    ]),
  );
  const empty = await AgentSession.create(ann, { agent });
  await ann.send('DELETE', empty.path);
  await eventually(() => expect(toldOf(to, empty.id)).toEqual(['idle', 'interrupted']));
});

test('changes of sessions of the Sessions API are sent, too, and its webhooks get nothing new', async () => {
  const to = await receiver();
  const other = await receiver();
  await register(to.url);
  const { body } = await admin.send('POST', '/v1/webhooks', { url: other.url, events: ['turn.done'] });
  onTestFinished(async () => void (await admin.send('DELETE', `/v1/webhooks/${body.data.id}`)));
  await admin.putAgent('asking', { model: { name: 'asking' }, ...onTestServer });
  server.model.script('asking', use({ name: 'write', args: {}, id: 'w1' }), say('Done.'));
  const session = await ann.createSession('asking');
  await ann.turn(session, 'write').done;
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  await ann.turn(session, [approval]).done;
  const told = ['idle', 'running', 'paused', 'running', 'idle'];
  await eventually(() => expect(toldOf(to, toUuid(session))).toEqual(told));
  const heard = () => other.messages(body.data.secret).map(({ type }) => type);
  await expect.poll(heard).toEqual(['turn.done', 'turn.done']);
  for (const [api, id] of [
    ['/v1', received(to)[0]?.id ?? ''],
    ['/api/v2', body.data.id],
  ]) {
    expect((await admin.send('DELETE', `${api}/webhooks/${id}`)).status).toBe(404);
  }
});

test('messages that follow each other quickly are sent in order', async () => {
  const to = await receiver();
  await register(to.url);
  const session = await AgentSession.create(ann, { agent: agentNamed('quick'), messages: 'Hi', idle_timeout_s: 600 });
  let seen = 0;
  for (let i = 0; i < 8; i++) {
    seen += (await session.settle(seen)).events.length;
    expect(await session.say('More')).toMatchObject({ status: 202 });
  }
  await session.settle(seen);
  const told = ['pending', ...Array.from({ length: 9 }, () => ['running', 'idle']).flat()];
  await eventually(() => expect(toldOf(to, session.id)).toEqual(told));
});

test('changes that were committed before a stop are delivered after it, each once', async () => {
  const to = await WebhookReceiver.prepare();
  onTestFinished(() => to.stop());
  await register(to.url);
  const session = await AgentSession.create(ann, { agent: agentNamed('stopped'), messages: 'Hi' });
  await session.settle();
  const idle = await AgentSession.create(ann, { agent: agentNamed('idle'), messages: 'Hi', idle_timeout_s: 600 });
  await idle.settle();
  await endIdleTimeout(idle);
  await server.restart();
  connect();
  await to.start();
  await eventually(() => expect(toldOf(to, session.id)).toEqual(['pending', 'running', 'completed']));
  await eventually(() => expect(toldOf(to, idle.id)).toEqual(['pending', 'running', 'idle', 'completed']));
});

test('a server that is killed after each message sends what follows, and repeats at most that message', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-webhooks-'));
  const model = await ScriptedModel.start();
  const to = await receiver();
  const process = await ServerProcess.prepare(dataDir, {
    EVERTURN_TASK_QUEUE: newId('req'),
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
  });
  const rows = openRows(`sqlite:${path.join(dataDir, 'catalog.db')}`);
  onTestFinished(async () => {
    await process.kill();
    await rows.destroy();
    await model.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  await process.start();
  expect((await process.api.send('POST', '/api/v2/webhooks', { url: to.url })).status).toBe(201);
  // A kill may hit a model call, which is repeated.
  model.otherwise = (call) => {
    const isAnswered = call.request.messages.some(({ role }) => role === 'tool');
    return (isAnswered ? say('Done.') : use({ name: 'lookup', id: 'a' }))(call);
  };
  const agent = agentNamed('killed', { tools: [lookup] });
  // The first message may be sent before the request is answered whose answer has the session's id.
  const isCreated = Promise.withResolvers<void>();
  const killed = [0, 1].map(() => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    to.next.push(() => void isCreated.promise.then(() => process.kill()).then(resolve, reject));
    return promise;
  });
  const { id } = await AgentSession.create(process.api, { agent, messages: 'Hi' });
  isCreated.resolve();
  for (const one of killed) {
    await one;
    // As if the lease had ended.
    await rows.updateTable('delivery_lanes').set({ due_at: new Date().toISOString() }).execute();
    await process.start();
  }
  const session = new AgentSession(process.api, id);
  await session.until('awaiting_tool_results');
  await session.post('tool_results', result);
  const accepted = () => [...new Map(received(to).map((message) => [message.id, message])).values()];
  await eventually(() =>
    expect(accepted().map(({ data }) => 'status' in data && [data.previous_status, data.status])).toEqual([
      ['pending', 'running'],
      ['running', 'awaiting_tool_results'],
      ['awaiting_tool_results', 'running'],
      ['running', 'completed'],
    ]),
  );
  // The first message was repeated twice, or the first and the second once each.
  expect(to.requests.length).toBeLessThanOrEqual(6);
});

test('a webhook that fails for a day is disabled until it is enabled again', async () => {
  const to = await receiver();
  const { id } = await register(to.url);
  const record = () => admin.get<WebhookRecord>(`/api/v2/webhooks/${id}`);

  expect(await record()).toMatchObject({ disabled: false, last_delivery_status: null, consecutive_failures: 0 });
  const start = (name: string) => AgentSession.create(ann, { agent: agentNamed(name), messages: 'Hi' });
  const first = await start('healthy');
  await eventually(() => expect(toldOf(to, first.id)).toHaveLength(3));
  // Only then has the last attempt been recorded, which sets the number of failures.
  await eventually(async () => {
    expect(await server.database.rows.selectFrom('delivery_lanes').selectAll().execute()).toEqual([]);
  });
  const { last_delivery_status: status, last_success_at: at, last_delivery_at } = await record();
  expect([status, at]).toEqual(['succeeded', last_delivery_at]);
  // As if it had failed for a day, and had one failure to go.
  const yesterday = new Date(Date.now() - 25 * 3_600_000).toISOString();
  const failing = { failures: 19, failing_since: yesterday };
  await server.database.rows.updateTable('webhooks').set(failing).where('id', '=', id).execute();
  to.next.push((response) => response.writeHead(500).end());
  await start('failing');
  await eventually(async () =>
    expect(await record()).toMatchObject({
      disabled: true,
      last_delivery_status: 'failed',
      last_delivery_error: 'answered with HTTP 500',
      consecutive_failures: 20,
    }),
  );
  // Neither what was pending nor what follows is delivered.
  const before = to.requests.length;
  await (await start('unheard')).settle();
  await eventually(async () => {
    expect(await server.database.rows.selectFrom('delivery_lanes').selectAll().execute()).toEqual([]);
  });
  expect(to.requests).toHaveLength(before);
  const { body } = await admin.send<WebhookRecord>('PATCH', `/api/v2/webhooks/${id}`, { disabled: false });
  expect(body).toMatchObject({ disabled: false, consecutive_failures: 0 });
  const again = await start('heard');
  await eventually(() => expect(toldOf(to, again.id)).toEqual(['pending', 'running', 'completed']));
});

test('a message is repeated with the old secret while a rotation lasts', async () => {
  const to = await receiver();
  const { id, secret: old } = await register(to.url);
  const { status, body } = await admin.send<Registered>('POST', `/api/v2/webhooks/${id}/rotate`);
  expect(status).toBe(200);
  to.next.push((response) => response.writeHead(401).end());
  const session = await AgentSession.create(ann, { agent: agentNamed('rotated'), messages: 'Hi' });
  await eventually(() => expect(to.requests).toHaveLength(3));
  const [refused, repeated, next] = to.requests.map(({ headers, body: text }) => ({
    body: text,
    signature: headers['x-h-webhook-signature'],
    timestamp: headers['x-h-webhook-timestamp'],
  }));
  expect(repeated?.body).toBe(refused?.body);
  const python = await pythonWith('hai-agents==1.3.0');
  const script = fileURLToPath(new URL('../../python/verify_webhooks.py', import.meta.url));
  const [fresh, both] = [body.secret, [body.secret, old]];
  const pairs = [
    [refused, fresh],
    [refused, old],
    [refused, both],
    [repeated, old],
    [repeated, both],
    [next, fresh],
    [next && { ...next, body: `${next.body} ` }, both],
  ] as const;
  const cases = pairs.map(([message, secret]) => ({ ...message, secret }));
  const { stdout } = await run(python, [script, JSON.stringify(cases)], { timeout: 60_000 });
  const event = [session.id, 'running', 'pending'];
  const done = [session.id, 'completed', 'running'];
  const mismatch = 'signature mismatch';
  expect(JSON.parse(stdout)).toEqual([event, mismatch, event, event, event, done, mismatch]);
}, 240_000);

test('the Python SDK manages webhooks', async () => {
  const to = await receiver();
  to.next.push(
    (response) => response.writeHead(202).end(),
    (response) => response.writeHead(500).end(),
  );
  const python = await pythonWith('hai-agents==1.3.0');
  const script = fileURLToPath(new URL('../../python/manage_webhooks.py', import.meta.url));
  const { stdout, stderr } = await run(python, [script, server.server.url, 'key-of-root', to.url], { timeout: 60_000 });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual({
    created: [['*'], null, false, null],
    listed: [1, 1, 0],
    events: ['session.status_updated'],
    updated: [['session.status_updated'], 'Mine', true],
    rotated: true,
    pings: [202, 500],
    deleted: 404,
  });
  expect(received(to).map(({ type }) => type)).toEqual(['ping', 'ping']);
}, 240_000);

test('only admins manage webhooks, and there are at most ten', async () => {
  const url = 'https://example.com/hook';
  const made: Registered[] = [];
  for (let i = 0; i < 10; i++) made.push(await register(url, { description: `no. ${i}` }));
  const [one] = made;
  expect((await admin.send('POST', '/api/v2/webhooks', { url })).status).toBe(400);
  const shown = await admin.get<{ items: WebhookRecord[]; total: number }>('/api/v2/webhooks?size=3&page=2');
  expect(shown.total).toBe(10);
  expect(shown.items.map(({ description }) => description)).toEqual(['no. 6', 'no. 5', 'no. 4']);
  expect(JSON.stringify(await admin.get('/api/v2/webhooks?sort=created_at'))).not.toContain('whsec_');
  for (const [method, at, sent] of [
    ['GET', '', undefined],
    ['POST', '', { url }],
    ['GET', '/events', undefined],
    ['GET', `/${one?.id}`, undefined],
    ['PATCH', `/${one?.id}`, {}],
    ['DELETE', `/${one?.id}`, undefined],
    ['POST', `/${one?.id}/rotate`, undefined],
    ['POST', `/${one?.id}/ping`, undefined],
  ] as const) {
    expect((await ann.send(method, `/api/v2/webhooks${at}`, sent)).status, `${method} ${at}`).toBe(403);
    if (!at.includes('whk_')) continue;
    const missing = at.replace(one?.id ?? '', 'whk_missing');
    expect((await admin.send(method, `/api/v2/webhooks${missing}`, sent)).status, `${method} ${missing}`).toBe(404);
  }
  for (const wrong of [
    { url: 'ftp://example.com/' },
    { url: `https://example.com/${'x'.repeat(2_048)}` },
    { url, enabled_events: [] },
    { url, enabled_events: ['session.dreamt'] },
    { url, secret: 'mine' },
  ]) {
    expect((await admin.send('POST', '/api/v2/webhooks', wrong)).status).toBe(422);
  }
});

test('a ping says why there is no answer, and does not reach private addresses unless that is allowed', async () => {
  const to = await WebhookReceiver.prepare();
  onTestFinished(() => to.stop());
  const { id } = await register(to.url);
  const ping = () => admin.send('POST', `/api/v2/webhooks/${id}/ping`);
  const silent = await ping();
  expect([silent.status, silent.body.message]).toEqual([422, 'the webhook refuses connections: is it running?']);
  await to.start();
  await server.restart({ EVERTURN_ALLOW_PRIVATE_URLS: 'false' });
  connect();
  onTestFinished(async () => {
    await server.restart({ EVERTURN_ALLOW_PRIVATE_URLS: 'true' });
    connect();
  });
  const refused = await ping();
  expect([refused.status, refused.body.message]).toEqual([422, expect.stringContaining('is at a private address')]);
  expect(to.requests).toEqual([]);
});

test('nothing is sent about a deleted session', async () => {
  // An attempt that has begun is not taken back, so the deletion happens during one, which fails. It begins when the
  // session has ended: it has little time.
  const to = await WebhookReceiver.prepare();
  onTestFinished(() => to.stop());
  await register(to.url);
  const session = await AgentSession.create(ann, { agent: agentNamed('deleted'), messages: 'Hi' });
  await session.settle();
  const begun = to.holdNext();
  await to.start();
  const response = await begun;
  const deleted = await ann.send('DELETE', `/v1/agents/draft-sessions/${fromUuid(session.id)}`);
  expect(deleted.status).toBe(204);
  response.writeHead(500).end();
  await eventually(async () => {
    expect(await server.database.rows.selectFrom('delivery_lanes').selectAll().execute()).toEqual([]);
  });
  expect(to.requests).toHaveLength(1);
});
