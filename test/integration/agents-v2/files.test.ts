import { afterAll, beforeAll, expect, test } from 'vitest';
import { AgentSession, agentNamed } from '../../support/agents-v2.ts';
import { ApiClient } from '../../support/api-client.ts';
import { say } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Larger than what an event has in itself. */
const PNG = Buffer.concat([
  Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  ),
  Buffer.alloc(300_000, 'x'),
]);
const UNKNOWN = '0'.repeat(64);

let server: TestServer;
let ann: ApiClient;
let bob: ApiClient;
let everyone: ApiClient;
let path: string;
let source: string;
beforeAll(async () => {
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann:user=key-of-ann,bob:user=key-of-bob' } });
  const { url } = server.api;
  [ann, bob, everyone] = [new ApiClient(url, 'key-of-ann'), new ApiClient(url, 'key-of-bob'), new ApiClient(url)];
  server.model.script('desk', say('A dot.'));
  const image = `data:image/png;base64,${PNG.toString('base64')}`;
  const messages = [{ message: 'What is it?', images: [image] }];
  const session = await AgentSession.create(ann, { agent: agentNamed('desk'), messages });
  await session.settle();
  ({ path } = session);
  const { items } = await ann.get(`${path}/events`);
  source = JSON.stringify(items).match(/\/api\/v2\/sessions\/[^"]+\/resources\/[^"]+/)?.[0] ?? '';
});
afterAll(() => server.stop());

/** The response to a client that follows redirects, as SDKs do. */
async function read(url: string, key?: string) {
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const response = await fetch(everyone.url + url, { headers });
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    isPng: PNG.equals(Buffer.from(await response.arrayBuffer())),
  };
}

test('the address of a file in an event leads to its bytes, with the same key', async () => {
  expect(await read(source, 'key-of-ann')).toEqual({ status: 200, type: 'image/png', isPng: true });
  const { status, headers } = await fetch(everyone.url + source, {
    headers: { authorization: 'Bearer key-of-ann' },
    redirect: 'manual',
  });
  expect([status, headers.get('location')]).toEqual([302, expect.stringMatching(/^\.\.\/\.\.\/files\/[\da-f]{64}\?/)]);
  for (const other of ['key-of-bob', undefined]) {
    const refused = other === undefined ? 401 : 404;
    expect((await read(source, other)).status).toBe(refused);
    expect((await read(source.replace('/resources/files/', '/files/'), other)).status).toBe(refused);
  }
});

test('the files of a shared session can be read by everyone', async () => {
  await ann.send('POST', `${path}/share`);
  expect(await read(source)).toEqual({ status: 200, type: 'image/png', isPng: true });
  expect(await read(source, 'key-of-bob')).toEqual({ status: 200, type: 'image/png', isPng: true });
  await ann.send('DELETE', `${path}/share`);
  expect((await read(source)).status).toBe(401);
});

test.each([
  `/resources/files/${UNKNOWN}`,
  `/resources/screenshots/${UNKNOWN}`,
  '/resources/files/a/../b',
  '/resources/files/%2e%2e%2fsecret',
])('a resource that does not exist is 404: %s', async (resource) => {
  expect((await read(path + resource, 'key-of-ann')).status).toBe(404);
});

test('a session has no device whose files could be read', async () => {
  for (const [name, body] of [
    ['list_files', {}],
    ['read_file', { path: '~/a.txt' }],
    ['write_file', { path: '~/a.txt', content_base64: 'YQ==' }],
  ] as const) {
    const { status, body: answer } = await ann.send('POST', `${path}/files/${name}`, body);
    expect([status, answer]).toMatchObject([422, { detail: [{ type: 'feature_not_available', loc: ['body'] }] }]);
    expect((await bob.send('POST', `${path}/files/${name}`, body)).status).toBe(404);
  }
  expect((await ann.send('POST', `${path}/files/read_file`, {})).body).toMatchObject({
    detail: [{ loc: ['body', 'path'] }],
  });
});
