import { once } from 'node:events';
import { connect } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { use, type Script } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

const KEYS = 'root:admin=key-of-root,ann=key-of-ann,bob=key-of-bob,cem=key-of-cem';

let server: TestServer;
afterEach(() => server.stop());

/** A server whose agent `slow` does not end its turns by itself, and its clients. */
async function start(env: Record<string, string>) {
  running.clear();
  server = await startTestServer({ env: { EVERTURN_API_KEYS: KEYS, ...env } });
  const as = (name: string) => new ApiClient(server.server.url, `key-of-${name}`);
  await as('root').putAgent('slow', { model: { name: 'slow' } });
  return { root: as('root'), ann: as('ann'), bob: as('bob'), cem: as('cem') };
}

const untilClosed: Script = async (call) => {
  call.text('Slowly');
  await call.closed;
};

const message = { input: [{ type: 'user.message', content: 'hi' }] };

/** Requests a turn that does not end, in its own session. True if it was admitted. */
async function isLetIn(client: ApiClient): Promise<boolean> {
  server.model.script('slow', untilClosed);
  const id = await client.createSession('slow');
  const { status, body } = await client.send('POST', `/v1/agents/sessions/${id}/turns`, { ...message, stream: false });
  if (status === 200) running.set(body.data.id, { client, id });
  else expect([status, body.error.code]).toEqual([429, 'too_many_turns']);
  return status === 200;
}

const running = new Map<string, { client: ApiClient; id: string }>();

/** The number of further turns that are admitted. */
async function fill(client: ApiClient): Promise<number> {
  let count = 0;
  while (await isLetIn(client)) count += 1;
  return count;
}

/** Ends one turn of a client, and waits until it no longer counts. */
async function endOne(client: ApiClient): Promise<void> {
  const [turnId, { id }] = [...running].find(([, one]) => one.client === client) ?? ['', { id: '' }];
  running.delete(turnId);
  await client.send('POST', `/v1/agents/sessions/${id}/cancel`, {});
  const archived = () =>
    server.database.rows.selectFrom('turns').select('archived').where('id', '=', turnId).executeTakeFirstOrThrow();
  await expect.poll(archived).toEqual({ archived: 1 });
}

test('a subject with many turns on a busy server waits, while others are admitted', async () => {
  const { ann, bob, cem } = await start({ EVERTURN_TURNS: '10' });
  // A single subject may use most of the capacity, but some is reserved for the next one.
  expect(await fill(ann)).toBe(8);
  expect(await isLetIn(bob)).toBe(true);
  expect(await isLetIn(ann)).toBe(false);
  expect(await isLetIn(bob)).toBe(true);
  // All of the capacity is used.
  expect([await isLetIn(bob), await isLetIn(cem)]).toEqual([false, false]);
  // Capacity that becomes free goes to subjects with fewer turns.
  await endOne(ann);
  expect([await isLetIn(ann), await isLetIn(cem)]).toEqual([false, true]);
  await endOne(ann);
  expect([await isLetIn(ann), await isLetIn(bob)]).toEqual([false, true]);
});

test('a subject has its own limit, however free the server is; a turn that replaces another does not count twice', async () => {
  const { ann, bob } = await start({ EVERTURN_TURNS_PER_SUBJECT: '2' });
  expect(await fill(ann)).toBe(2);
  expect(await isLetIn(bob)).toBe(true);
  const [, first] = [...running].find(([, { client }]) => client === ann) ?? [];
  server.model.script('slow', untilClosed);
  const next = ann.turn(first?.id ?? '', 'instead');
  await next.says('Slowly');
  expect(await isLetIn(ann)).toBe(false);
  next.close();
});

test('a rejected turn has written nothing, and can be sent again', async () => {
  const { ann } = await start({ EVERTURN_TURNS_PER_SUBJECT: '1' });
  const tables = ['turns', 'idempotency', 'archive'] as const;
  const rows = () => Promise.all(tables.map((table) => server.database.rows.selectFrom(table).selectAll().execute()));
  await fill(ann);
  const id = await ann.createSession('slow');
  const before = await rows();
  const path = `/v1/agents/sessions/${id}/turns`;
  for (const headers of [{}, { 'idempotency-key': 'once' }]) {
    const answer = await ann.send('POST', path, message, headers);
    expect([answer.status, answer.body.error.type]).toEqual([429, 'rate_limit_error']);
    expect(answer.headers.get('retry-after')).toBe('3');
  }
  expect(await rows()).toEqual(before);
  expect(await ann.list(path, 25)).toEqual([]);
  await endOne(ann);
  const { status } = await ann.send('POST', path, { ...message, stream: false }, { 'idempotency-key': 'once' });
  expect(status).toBe(200);
  await ann.send('POST', `/v1/agents/sessions/${id}/cancel`, {});
});

test('no more concurrent requests are admitted than the limit', async () => {
  const { ann } = await start({ EVERTURN_TURNS_PER_SUBJECT: '3' });
  const ids = await Promise.all(Array.from({ length: 8 }, () => ann.createSession('slow')));
  server.model.script('slow', untilClosed, untilClosed, untilClosed);
  const statuses = await Promise.all(
    ids.map(async (id) => {
      const path = `/v1/agents/sessions/${id}/turns`;
      return (await ann.send('POST', path, { ...message, stream: false })).status;
    }),
  );
  expect(statuses.toSorted((a, b) => a - b)).toEqual([200, 200, 200, 429, 429, 429, 429, 429]);
});

test('the repetition of a started turn is not limited', async () => {
  const { ann } = await start({ EVERTURN_TURNS_PER_SUBJECT: '1', EVERTURN_REQUESTS_PER_MINUTE: '20' });
  server.model.script('slow', untilClosed);
  const id = await ann.createSession('slow');
  const path = `/v1/agents/sessions/${id}/turns`;
  const key = { 'idempotency-key': 'once' };
  const first = ann.turn(id, 'hi', {}, key);
  await first.says('Slowly');
  const turnId = await first.turnId();
  const other = await ann.createSession('slow');
  const refused = async (more = {}) => ann.send('POST', `/v1/agents/sessions/${other}/turns`, message, more);
  expect((await refused()).body.error.code).toBe('too_many_turns');
  const repeated = async () => {
    const reader = ann.turn(id, 'hi', {}, key);
    expect(await reader.turnId()).toBe(turnId);
    reader.close();
  };
  await repeated();
  // The same when the requests of the minute are used up.
  while ((await ann.send('GET', path)).status === 200);
  await repeated();
  const answer = await refused(key);
  expect(answer.body.error.code).toBe('rate_limited');
  expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
  first.close();
  // But reading a body has a cost: a client that continues to send is rejected unread.
  const again = async () => (await ann.send('POST', path, { ...message, stream: false }, key)).body.error?.code;
  const heard = [];
  for (let i = 0; i < 25; i++) heard.push(await again());
  expect([heard[0], heard.at(-1)]).toEqual(['idempotency_key_reused', 'rate_limited']);
});

test.each([
  ['a subject', { EVERTURN_STREAMS_PER_SUBJECT: '2' }, 200],
  ['a process', { EVERTURN_STREAMS: '2' }, 429],
])('%s has at most this many streams, whichever way they are requested', async (_, env, forOthers) => {
  const { ann, bob } = await start(env);
  server.model.script('slow', untilClosed, untilClosed);
  const id = await ann.createSession('slow');
  const first = ann.turn(id, 'hi');
  await first.says('Slowly');
  const turnId = await first.turnId();
  const second = ann.subscribe(id, turnId);
  await second.says('Slowly');
  const path = `/v1/agents/sessions/${id}/turns`;
  const before = await server.database.rows.selectFrom('turns').selectAll().execute();
  for (const answer of [
    await ann.send('POST', path, message),
    await ann.send('POST', `${path}/${turnId}/subscribe`, {}),
    await ann.send('GET', `${path}/${turnId}/stream`),
  ]) {
    expect([answer.status, answer.body.error.type]).toEqual([429, 'rate_limit_error']);
    expect([answer.body.error.code, answer.headers.get('retry-after')]).toEqual(['too_many_streams', '3']);
  }
  expect(await server.database.rows.selectFrom('turns').selectAll().execute()).toEqual(before);
  expect(await server.database.rows.selectFrom('idempotency').selectAll().execute()).toEqual([]);
  // Requests that are no streams are answered, and so are other subjects if there is room.
  expect((await ann.send('GET', `${path}/${turnId}`)).status).toBe(200);
  const theirs = await bob.createSession('slow');
  const other = bob.turn(theirs, 'hi');
  if (forOthers === 200) await other.says('Slowly');
  else await expect(other.done).rejects.toThrow(/429 .*too_many_streams/);
  other.close();
  // A reader that leaves makes room.
  second.close();
  const again = async () => {
    const reader = ann.subscribe(id, turnId);
    const isIn = await reader.says('Slowly').then(
      () => true,
      () => false,
    );
    reader.close();
    return isIn;
  };
  await expect.poll(again).toBe(true);
  first.close();
});

test('each subject has its requests per minute, and gets the number that remains', async () => {
  const { ann, bob } = await start({ EVERTURN_REQUESTS_PER_MINUTE: '3' });
  const get = (client: ApiClient) => client.send('GET', '/v1/agents/slow');
  const left = async () => /; r=(\d+)/.exec((await get(ann)).headers.get('ratelimit') ?? '')?.[1];
  expect([await left(), await left(), await left()]).toEqual(['2', '1', '0']);
  const { status, body, headers } = await get(ann);
  expect([status, body.error.code]).toEqual([429, 'rate_limited']);
  expect(headers.get('ratelimit-policy')).toMatch(/^"requests"; q=3; w=60/);
  expect(Number(headers.get('retry-after'))).toSatisfy((seconds: number) => seconds > 0 && seconds <= 60);
  expect((await get(bob)).status).toBe(200);
});

test('unknown keys are rejected for some time after a few attempts; existing keys work, also at first use', async () => {
  const { ann, bob } = await start({ EVERTURN_UNKNOWN_KEYS_PER_MINUTE: '3' });
  const send = (client: ApiClient) => client.send('GET', '/v1/agents/slow');
  const get = async (client: ApiClient) => (await send(client)).status;
  const stranger = (i: number) => new ApiClient(server.server.url, `guess-${i}`);
  expect(await get(ann)).toBe(200);
  for (let i = 0; i < 3; i++) expect(await get(stranger(i))).toBe(401);
  const { status, headers } = await send(stranger(3));
  expect(status).toBe(429);
  expect(Number(headers.get('retry-after'))).toSatisfy((seconds: number) => seconds > 0 && seconds <= 60);
  expect([await get(ann), await get(bob)]).toEqual([200, 200]);
  expect(await get(new ApiClient(server.server.url))).toBe(401);
});

test('an address makes a limited number of requests without a key, where none is needed', async () => {
  const { ann } = await start({ EVERTURN_REQUESTS_PER_MINUTE: '2' });
  const visit = async (path: string) => (await fetch(`${server.server.url}${path}`)).status;
  const signIn = '/v1/agents/mcp/authorize?state=x';
  expect([await visit(signIn), await visit('/openapi.json'), await visit(signIn)]).toEqual([404, 200, 429]);
  const descriptions = ['/openapi.json', '/api/v2/openapi.json', '/docs', '/docs/start.js'];
  for (const path of descriptions) expect([path, await visit(path)]).toEqual([path, 429]);
  expect(await visit('/healthz')).toBe(200);
  expect((await ann.send('GET', '/v1/agents/slow')).status).toBe(200);
});

test('one address cannot use all connections: those without a valid key are limited, others continue', async () => {
  const { ann } = await start({});
  const { hostname, port } = new URL(server.server.url);
  const sockets = Array.from({ length: 1_001 }, () => connect(Number(port), hostname).on('error', () => undefined));
  await Promise.race(sockets.map((socket) => once(socket, 'close')));
  // On its existing connection.
  const { status } = await ann.send('GET', '/v1/agents/slow');
  for (const socket of sockets) socket.destroy();
  expect(status).toBe(200);
});

test('without keys only the configured limits apply', async () => {
  server = await startTestServer();
  const { headers } = await server.api.send('GET', '/v1/agents');
  expect(headers.get('ratelimit')).toBeNull();
  await server.stop();
  server = await startTestServer({ env: { EVERTURN_REQUESTS_PER_MINUTE: '1' } });
  const status = async () => (await server.api.send('GET', '/v1/agents')).status;
  expect([await status(), await status()]).toEqual([200, 429]);
});

test('a turn that waits for answers is not counted, until it is answered', async () => {
  const { ann, root } = await start({ EVERTURN_TURNS_PER_SUBJECT: '1' });
  await root.putAgent('asks', { model: { name: 'asks' }, config: { pause: 'wait' } });
  const question = use({ name: 'ask_user_question', id: 'q1', args: { question: 'Why?' } });
  server.model.script('asks', question, untilClosed);
  const id = await ann.createSession('asks');
  const waiting = ann.turn(id, 'hi');
  await waiting.type('turn.paused');
  // The worker records the pause in the index a moment later.
  await expect.poll(() => isLetIn(ann)).toBe(true);
  await endOne(ann);
  const answer = { type: 'user.tool_response', thread_id: 'main', tool_call_id: 'q1', content: 'because' };
  expect((await ann.send('POST', `/v1/agents/sessions/${id}/actions`, { input: [answer] })).status).toBe(200);
  await waiting.says('Slowly');
  await expect
    .poll(() => server.database.rows.selectFrom('turns').select('state').where('session_id', '=', id).execute())
    .toEqual([{ state: 'running' }]);
  expect(await isLetIn(ann)).toBe(false);
});
