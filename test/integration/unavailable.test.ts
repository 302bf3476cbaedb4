import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
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
  await server.stop();
  await proxy.stop();
});

async function back(): Promise<void> {
  proxy.up();
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status, { timeout: 20_000 }).toBe(200);
}

/** The one claim of a request without a key. */
function claim(sql: 'age' | 'read'): { turnId: string; age: number } | undefined {
  const catalog = new DatabaseSync(path.join(server.dataDir, 'catalog.db'));
  try {
    const long = new Date(Date.now() - 40_000).toISOString();
    if (sql === 'age') catalog.prepare("UPDATE idempotency SET created_at = ? WHERE key LIKE 'body:%'").run(long);
    const row = catalog.prepare("SELECT resource_id, created_at FROM idempotency WHERE key LIKE 'body:%'").get();
    return row && { turnId: String(row['resource_id']), age: Date.now() - Date.parse(String(row['created_at'])) };
  } finally {
    catalog.close();
  }
}

test.each(['is 503', 'finds nobody'])('a request that takes long and whose answer %s can be repeated', async (how) => {
  const chat = await server.chat();
  const body = { input: [{ type: 'user.message', content: 'hi' }], stream: false };
  proxy.down();
  const turns = `${chat.path}/turns`;
  const first = how === 'is 503' ? server.api.send('POST', turns, body) : hangUp(server.api.url, turns, body);
  await expect.poll(() => claim('read'), { interval: 5 }).toBeDefined();
  // As if it had come 40 s ago: since then a repetition would be another request.
  const turnId = claim('age')?.turnId;
  const answer = await first;
  if (answer) expect(answer.status).toBe(503);
  await expect.poll(() => claim('read')?.age, { timeout: 20_000 }).toBeLessThan(20_000);
  await back();
  const again = await server.api.send('POST', turns, body);
  expect([again.status, again.body.data.id]).toEqual([200, turnId]);
});

test('a session that could not be told of its end can be closed again', async () => {
  const chat = await server.chat();
  proxy.down();
  expect((await server.api.send('POST', `${chat.path}/cancel`, { close: true })).status).toBe(503);
  await back();
  expect((await server.api.send('POST', `${chat.path}/cancel`, { close: true })).status).toBe(200);
  const refused = await server.api.send('POST', `${chat.path}/turns`, { input: [] });
  expect([refused.status, refused.body.error.code]).toEqual([409, 'session_closed']);
});

test('what is not ready says so in the form of all errors too, and when to ask again', async () => {
  proxy.down();
  const { status, headers, body } = await server.api.send('GET', '/readyz');
  expect(status).toBe(503);
  expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  expect(body).toEqual({
    status: 'not ready',
    problems: [expect.stringMatching(/^Temporal can not be reached/)],
    error: {
      type: 'server_error',
      code: 'unavailable',
      message: expect.stringContaining('Temporal can not be reached'),
    },
  });
});
