import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { hangUp } from '../support/raw-http.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let proxy: TcpProxy;
let server: TestServer;
beforeEach(async () => {
  proxy = await TcpProxy.start(inject('temporalAddress'));
  server = await startTestServer({ env: { TEMPORAL_ADDRESS: proxy.address } });
});
afterEach(async () => {
  proxy.up();
  proxy.flow();
  await server.stop();
  await proxy.stop();
});

async function back(): Promise<void> {
  proxy.up();
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status).toBe(200);
}

/** The one claim of a request without a key. */
async function claim(): Promise<{ turnId: string; age: number } | undefined> {
  const row = await server.database.rows
    .selectFrom('idempotency')
    .select(['resource_id', 'created_at'])
    .where('key', 'like', 'body:%')
    .executeTakeFirst();
  return row && { turnId: row.resource_id, age: Date.now() - Date.parse(row.created_at) };
}

/** Makes the request appear to be this old. After 30 s a repetition is another request. */
async function setAge(ms: number): Promise<void> {
  const then = new Date(Date.now() - ms).toISOString();
  const { rows } = server.database;
  await rows.updateTable('idempotency').set({ created_at: then }).where('key', 'like', 'body:%').execute();
}

test.each(['is 503', 'finds nobody'])('a long request whose response %s can be repeated', async (how) => {
  const chat = await server.chat();
  const body = { input: [{ type: 'user.message', content: 'hi' }], stream: false };
  // Temporal does not answer until the claim is old: the response renews it.
  proxy.hold();
  const turns = `${chat.path}/turns`;
  const first = how === 'is 503' ? server.api.send('POST', turns, body) : hangUp(server.api.url, turns, body);
  await expect.poll(claim, { interval: 5 }).toBeDefined();
  await setAge(40_000);
  const turnId = (await claim())?.turnId;
  proxy.down();
  proxy.flow();
  const answer = await first;
  if (answer) expect(answer.status).toBe(503);
  await expect.poll(async () => (await claim())?.age).toBeLessThan(20_000);
  await back();
  // That may have taken long.
  await setAge(0);
  const again = await server.api.send('POST', turns, body);
  expect([again.status, again.body.data.id]).toEqual([200, turnId]);
});

test('a session that could not be notified of its end can be closed again', async () => {
  const chat = await server.chat();
  proxy.down();
  expect((await server.api.send('POST', `${chat.path}/cancel`, { close: true })).status).toBe(503);
  await back();
  expect((await server.api.send('POST', `${chat.path}/cancel`, { close: true })).status).toBe(200);
  const refused = await server.api.send('POST', `${chat.path}/turns`, { input: [] });
  expect([refused.status, refused.body.error.code]).toEqual([409, 'session_closed']);
});

test('unreadiness is reported in the format of all errors, with the time after which to retry', async () => {
  proxy.down();
  const { status, headers, body } = await server.api.send('GET', '/readyz');
  expect(status).toBe(503);
  expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  expect(body).toEqual({
    status: 'not ready',
    // The stores may be too slow for a check.
    problems: expect.arrayContaining([expect.stringMatching(/^Temporal cannot be reached.* \(since 20\d\d-.*Z\)$/)]),
    warnings: [],
    error: {
      type: 'server_error',
      code: 'unavailable',
      message: expect.stringContaining('Temporal cannot be reached'),
    },
  });
});
