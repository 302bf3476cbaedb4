import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { ServerResponse } from 'node:http';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import type { DeliveryResource } from '../../src/api/sessions/wire/webhooks.ts';
import { newId } from '../../src/engine/new-id.ts';
import { ApiClient } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { Exposition } from '../support/prometheus.ts';
import { say, ScriptedModel, use } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { openRows } from '../support/test-database.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';
import { WebhookReceiver } from '../support/webhook-receiver.ts';

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

async function restart(env: Record<string, string>): Promise<void> {
  await server.restart(env);
  connect();
}

interface Registered {
  id: string;
  secret: string;
}

/** Registers a webhook until the end of the test. */
async function register(url: string, more: object = {}): Promise<Registered> {
  const { status, body } = await admin.send('POST', '/v1/webhooks', { url, events: ['turn.done'], ...more });
  expect(status).toBe(201);
  onTestFinished(async () => void (await admin.send('DELETE', `/v1/webhooks/${body.data.id}`)));
  return body.data;
}

async function receiver(): Promise<WebhookReceiver> {
  const one = await WebhookReceiver.start();
  onTestFinished(() => one.stop());
  return one;
}

/** A session of ann with an agent of this name. */
async function sessionOf(agent: string): Promise<string> {
  await admin.putAgent(agent, { model: { name: agent }, ...onTestServer });
  return ann.createSession(agent);
}

const allow = [{ type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } }];

test('the events of a session arrive signed and in order, each once', async () => {
  const to = await receiver();
  const events = ['turn.done', 'action.created', 'action.decided'];
  const { secret, id } = await register(to.url, { events, agent_name: 'notified' });
  const session = await sessionOf('notified');
  server.model.script('notified', use({ name: 'write', args: { text: 'a' }, id: 'w1' }), say('Done.'));
  const first = ann.turn(session, 'write');
  await first.done;
  await eventually(() => expect(to.requests).toHaveLength(2));
  const second = ann.turn(session, allow);
  await second.done;
  // An event of another agent is not delivered.
  await ann.turn(await sessionOf('unnoticed'), 'hi').done;
  await eventually(() => expect(to.requests).toHaveLength(4));
  const place = { session_id: session, agent_name: 'notified' };
  const [one, two] = [await first.turnId(), await second.turnId()];
  expect(to.messages(secret)).toMatchObject([
    {
      type: 'action.created',
      data: { ...place, turn_id: one, action: { status: 'pending', arguments: { text: 'a' } } },
    },
    { type: 'turn.done', data: { ...place, turn_id: one, turn: { id: one, state: { required_actions: [{}] } } } },
    { type: 'action.decided', data: { ...place, turn_id: one, action: { decisions: [{ decision: 'allow' }] } } },
    { type: 'turn.done', data: { ...place, turn_id: two, turn: { id: two, state: { output: { content: 'Done.' } } } } },
  ]);
  expect(new Set(to.ids).size).toBe(4);
  await eventually(async () => {
    const deliveries = await admin.list<DeliveryResource>(`/v1/webhooks/${id}/deliveries`, 3);
    expect(deliveries.map((one) => [one.id, one.status, one.attempts, one.response_status])).toEqual(
      to.ids.toReversed().map((one) => [one, 'delivered', 1, 204]),
    );
  });
});

test('a receiver that is down, fails, hangs or answers nonsense gets its messages in order once it works', async () => {
  const [failing, working] = [await WebhookReceiver.prepare(), await receiver()];
  onTestFinished(() => failing.stop());
  const { secret, id } = await register(failing.url, { agent_name: 'patient' });
  await register(working.url, { agent_name: 'patient' });
  const session = await sessionOf('patient');
  const turns: string[] = [];
  const errors = async (): Promise<(string | null)[]> => {
    const deliveries = await admin.list<DeliveryResource>(`/v1/webhooks/${id}/deliveries`);
    return deliveries.map(({ error }) => error);
  };
  for (const text of ['one', 'two']) {
    const reader = ann.turn(session, text);
    await reader.done;
    turns.push(await reader.turnId());
  }
  await eventually(async () => expect(await errors()).toEqual([null, 'refuses connections: is it running?']));
  // The other receiver is not delayed.
  await eventually(() => expect(working.requests).toHaveLength(2));
  failing.next.push(
    (response) => response.writeHead(500).end('x'.repeat(4_000_000)),
    (response) => response.writeHead(302, { location: working.url }).end(),
    (response) => endless(response.writeHead(200)),
  );
  await failing.start();
  // Three attempts at the first message, then the second.
  await eventually(() => expect(failing.requests).toHaveLength(4));
  const received = failing.messages(secret);
  expect(received.map(({ data }) => 'turn_id' in data && data.turn_id)).toEqual([
    ...[0, 0, 0].map((at) => turns[at]),
    turns[1],
  ]);
  expect(new Set(failing.ids).size).toBe(2);
  // The redirect was not followed.
  expect(working.requests).toHaveLength(2);
  const metrics = await fetch(`${server.server.url}/metrics`, { headers: { authorization: 'Bearer key-of-root' } });
  const { samples } = new Exposition(await metrics.text());
  const attempts = samples.filter(({ name }) => name === 'everturn_webhook_attempts_total');
  expect(attempts.find(({ labels }) => labels['outcome'] === 'retried')?.value).toBeGreaterThanOrEqual(3);
});

/** Writes without an end, until the other side hangs up. */
function endless(response: ServerResponse): void {
  const timer = setInterval(() => response.write('x'.repeat(100_000)), 10);
  response.on('close', () => clearInterval(timer));
}

test('an attempt ends after ten seconds, and other sessions do not wait for it', async () => {
  const to = await receiver();
  const { id } = await register(to.url, { agent_name: 'hanging' });
  to.next.push(() => undefined);
  await ann.turn(await sessionOf('hanging'), 'one').done;
  await eventually(() => expect(to.requests).toHaveLength(1));
  await ann.turn(await sessionOf('hanging'), 'two').done;
  await eventually(() => expect(to.requests).toHaveLength(2));
  const [stuck] = to.ids;
  await eventually(() => expect(to.ids.filter((one) => one === stuck)).toHaveLength(2));
  await eventually(async () => {
    const deliveries = await admin.list<DeliveryResource>(`/v1/webhooks/${id}/deliveries`);
    expect(deliveries.map(({ status, attempts }) => [status, attempts])).toEqual([
      ['delivered', 1],
      ['delivered', 2],
    ]);
  });
});

test('after a rotation both secrets sign for a day', async () => {
  const to = await receiver();
  const { id, secret: old } = await register(to.url);
  const ping = () => admin.send('POST', `/v1/webhooks/${id}/ping`);
  const { body } = await admin.send<{ data: Registered }>('POST', `/v1/webhooks/${id}/rotate`);
  expect(body.data.secret).not.toBe(old);
  await ping();
  await eventually(() => expect(to.requests).toHaveLength(1));
  for (const secret of [old, body.data.secret]) expect(to.messages(secret)).toMatchObject([{ type: 'ping', data: {} }]);
  await server.database.rows.updateTable('webhooks').set({ old_secret_until: '2020-01-01T00:00:00.000Z' }).execute();
  await ping();
  await eventually(() => expect(to.requests).toHaveLength(2));
  expect(to.messages(body.data.secret)).toHaveLength(2);
  expect(() => to.messages(old)).toThrow('No matching signature found');
});

test('only admins manage webhooks, and no answer but the first has the secret', async () => {
  const to = await receiver();
  const { id, secret } = await register(to.url);
  const shown = JSON.stringify(await admin.get('/v1/webhooks'));
  expect(shown).toContain(id);
  expect(shown).not.toContain(secret);
  const body = { url: to.url, events: ['turn.done'] };
  for (const [method, at, sent] of [
    ['GET', '', undefined],
    ['POST', '', body],
    ['DELETE', `/${id}`, undefined],
    ['POST', `/${id}/rotate`, undefined],
    ['POST', `/${id}/ping`, undefined],
    ['GET', `/${id}/deliveries`, undefined],
  ] as const) {
    expect((await ann.send(method, `/v1/webhooks${at}`, sent)).status, `${method} ${at}`).toBe(403);
    if (at === '') continue;
    const missing = await admin.send(method, `/v1/webhooks${at.replace(id, 'whk_missing')}`, sent);
    expect([missing.status, missing.body.error.code]).toEqual([404, 'webhook_not_found']);
  }
  for (const wrong of [
    { ...body, url: 'ftp://example.com/' },
    { ...body, url: 'https://user:password@example.com/' },
    { ...body, url: 'not a URL' },
    { ...body, events: [] },
    { ...body, events: ['turn.started'] },
  ]) {
    expect((await admin.send('POST', '/v1/webhooks', wrong)).body.error.code).toBe('invalid_request');
  }
});

test('a deleted webhook, and a deleted session, get no further deliveries', async () => {
  // An attempt that has begun is not taken back, so each deletion happens during one, which fails.
  const attempted = async (agent: string) => {
    const to = await receiver();
    const begun = to.holdNext();
    const { id } = await register(to.url, { agent_name: agent });
    const session = await sessionOf(agent);
    await ann.turn(session, 'hi').done;
    return { id, session, requests: to.requests, response: await begun };
  };
  const [one, other] = await Promise.all([attempted('of-gone-webhook'), attempted('of-gone-session')]);
  expect((await admin.send('DELETE', `/v1/webhooks/${one.id}`)).status).toBe(204);
  expect((await ann.send('DELETE', `/v1/agents/sessions/${other.session}`)).status).toBe(204);
  for (const { response } of [one, other]) response.writeHead(500).end();
  await eventually(async () => {
    expect(await server.database.rows.selectFrom('delivery_lanes').selectAll().execute()).toEqual([]);
  });
  for (const { requests } of [one, other]) expect(requests).toHaveLength(1);
});

test('no connection is made to a private address unless the operator allows it', async () => {
  const to = await receiver();
  const { id } = await register(to.url);
  await restart({ EVERTURN_ALLOW_PRIVATE_URLS: 'false' });
  onTestFinished(() => restart({ EVERTURN_ALLOW_PRIVATE_URLS: 'true' }));
  await admin.send('POST', `/v1/webhooks/${id}/ping`);
  await eventually(async () => {
    const [ping] = await admin.list<DeliveryResource>(`/v1/webhooks/${id}/deliveries`);
    expect(ping?.error).toContain('is at a private address: set EVERTURN_ALLOW_PRIVATE_URLS=true');
  });
  expect(to.requests).toEqual([]);
});

test('a delivery whose server is killed before it could record it is repeated with the same id', async () => {
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
  const { api } = process;
  const { body } = await api.send('POST', '/v1/webhooks', { url: to.url, events: ['turn.done'] });
  const killed = Promise.withResolvers<void>();
  to.next.push(() => void process.kill().then(killed.resolve, killed.reject));
  await api.putAgent('a', { model: { name: 'a' } });
  const session = await api.createSession('a');
  // The delivery may come before the end of the stream, which the kill then cuts off.
  await api.turn(session, 'one').done.catch(() => undefined);
  await killed.promise;
  // As if the lease had ended.
  await rows.updateTable('delivery_lanes').set({ due_at: new Date().toISOString() }).execute();
  await process.start();
  await eventually(() => expect(to.requests).toHaveLength(2));
  expect(new Set(to.ids).size).toBe(1);
  await api.turn(session, 'two').done;
  await eventually(() => expect(to.messages(body.data.secret)).toHaveLength(3));
  await eventually(async () => {
    const deliveries = await api.list<DeliveryResource>(`/v1/webhooks/${body.data.id}/deliveries`);
    expect(deliveries.map(({ status }) => status)).toEqual(['delivered', 'delivered']);
  });
});
