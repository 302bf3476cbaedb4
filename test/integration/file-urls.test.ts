import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { freePort } from '../../src/lib/processes.ts';
import { ApiClient } from '../support/api-client.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let ann: ApiClient;
let bob: ApiClient;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann,bob=key-of-bob', EVERTURN_ALLOW_PRIVATE_URLS: 'true' },
  });
  ann = new ApiClient(server.server.url, 'key-of-ann');
  bob = new ApiClient(server.server.url, 'key-of-bob');
  await ann.putAgent('reader', { model: { name: 'reader' } });
});
afterAll(() => server.stop());

/** A host on the internet. */
async function site(listener: RequestListener): Promise<string> {
  const web = createServer(listener).listen(0, '127.0.0.1');
  await new Promise((resolve) => web.once('listening', resolve));
  onTestFinished(() => {
    web.closeAllConnections();
    web.close();
  });
  return `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
}

const file = (data: string, name = 'a.txt') => ({ type: 'file', name, data });
const message = (...content: object[]) => [{ type: 'user.message', content }];

/** The files of a turn, as clients get them. */
async function sentBack(client: ApiClient, sessionId: string, ...content: object[]) {
  const reader = client.turn(sessionId, message(...content));
  await reader.done;
  const [item] = (await reader.type('turn.created')).input;
  return (item as unknown as { content: { name: string; data: string }[] }).content;
}

test('a file may be a URL: it is fetched before the turn starts, and stored as any other', async () => {
  const big = Buffer.from(`\x89PNG\r\n\x1a\n${'x'.repeat(100_000)}`, 'latin1');
  const web = await site((request, response) => {
    if (request.url === '/from') return void response.writeHead(302, { location: '/text' }).end();
    if (request.url === '/packed') {
      return void response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync('unpacked'));
    }
    if (request.url === '/big') return void response.writeHead(200, { 'content-type': 'image/png' }).end(big);
    return void response.writeHead(200, { 'content-type': 'Text/Plain; charset=utf-8' }).end('hello');
  });
  const id = await bob.createSession('reader');
  const urls = ['/text', '/from', '/packed', '/big'].map((path) => file(web + path));
  const files = await sentBack(bob, id, { type: 'text', text: 'read' }, ...urls);
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  expect(files.slice(1).map(({ data }) => data)).toEqual([
    `data:text/plain;base64,${base64('hello')}`,
    `data:text/plain;base64,${base64('hello')}`,
    `data:application/octet-stream;base64,${base64('unpacked')}`,
    expect.stringMatching(/^\/v1\/agents\/sessions\/.*type=image%2Fpng$/),
  ]);
  const asked = server.model.requestsTo('reader').at(-1)?.messages.at(-1)?.content;
  expect(asked).toContainEqual({
    type: 'image_url',
    image_url: { url: `data:image/png;base64,${big.toString('base64')}` },
  });

  // Files that the server has served can be sent again: by path, by URL, in another session, behind a prefix.
  const own = files[4]?.data ?? '';
  const other = await bob.createSession('reader');
  const again = [own, server.server.url + own, `/prefix${own}`, `${server.server.url}/prefix${own}`];
  const copies = await sentBack(bob, other, ...again.map((data) => file(data, 'copy.png')));
  const copy = own.replace(id, other).replace('a.txt', 'copy.png');
  expect(copies.map(({ data }) => data)).toEqual([copy, copy, copy, copy]);
  const response = await fetch(server.server.url + copy, { headers: { authorization: 'Bearer key-of-bob' } });
  expect(Buffer.from(await response.arrayBuffer()).equals(big)).toBe(true);
  // An admin may read the session that contains it; another user may not.
  const theirs = await ann.createSession('reader');
  expect(await sentBack(ann, theirs, file(own))).toHaveLength(1);
  const [hidden] = await sentBack(ann, theirs, file(`data:text/plain;base64,${big.toString('base64')}`));
  const refused = await bob.send('POST', `/v1/agents/sessions/${id}/turns`, {
    input: message(file(hidden?.data ?? '')),
  });
  expect([refused.status, refused.body.error.code]).toEqual([422, 'file_unavailable']);
});

test('a file that cannot be fetched rejects the turn, names the part and leaves nothing behind', async () => {
  const huge = Buffer.alloc(1024 * 1024);
  const web = await site((request, response) => {
    if (request.url === '/none') return void response.writeHead(404).end();
    if (request.url === '/loop') return void response.writeHead(307, { location: '/loop' }).end();
    if (request.url === '/file') return void response.writeHead(302, { location: 'file:///etc/passwd' }).end();
    if (request.url === '/cut')
      return void response.writeHead(200, { 'content-length': '9' }).end('x', () => response.destroy());
    if (request.url === '/bomb') {
      return void response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(Buffer.alloc(40 * 1024 * 1024)));
    }
    response.writeHead(200);
    const more = () => {
      while (response.write(huge));
    };
    response.on('drain', more);
    more();
  });
  const id = await bob.createSession('reader');
  const path = `/v1/agents/sessions/${id}/turns`;
  const { rows: db } = server.database;
  const rows = () =>
    Promise.all([
      db.selectFrom('turns').selectAll().where('session_id', '=', id).execute(),
      db.selectFrom('idempotency').selectAll().where('session_id', '=', id).execute(),
    ]);
  const cases: [string, RegExp][] = [
    [`${web}/none`, /answered with HTTP 404/],
    [`${web}/loop`, /redirects more than 5 times/],
    [`${web}/file`, /neither http nor https/],
    [`${web}/cut`, /closed the connection|terminated|failed/],
    [`${web}/endless`, /larger than 31457280 bytes/],
    [`${web}/bomb`, /larger than 31457280 bytes/],
    ['http://nowhere.invalid/', /does not resolve/],
    ['http://user:secret@127.0.0.1/', /user name or password/],
    ['http://[', /an invalid URL/],
    [`http://127.0.0.1:${await freePort()}/`, /refuses connections/],
    [`/v1/agents/sessions/${id}/files/${'0'.repeat(64)}`, /no such file/],
    [`/v1/agents/sessions/ses_none/files/${'0'.repeat(64)}`, /no such file/],
  ];
  for (const [data, reason] of cases) {
    const input = message({ type: 'text', text: 'read' }, file(data));
    const { status, body } = await bob.send('POST', path, { input }, { 'idempotency-key': 'once' });
    expect([status, body.error.code, body.error.param], data).toEqual([
      422,
      'file_unavailable',
      'input.0.content.1.data',
    ]);
    expect(body.error.message, data).toMatch(reason);
  }
  for (const data of ['https://', 'ftp://x/y', 'file:///etc/passwd', '/etc/passwd', 'hello', 'javascript:1']) {
    expect((await bob.send('POST', path, { input: message(file(data)) })).body.error.code).toBe('invalid_data_uri');
  }
  const many = Array.from({ length: 21 }, () => file(`${web}/none`));
  const tooMany = await bob.send('POST', path, { input: message(...many) });
  expect([tooMany.status, tooMany.body.error.param]).toEqual([400, 'input.0.content.20.data']);
  expect(await rows()).toEqual([[], []]);
  expect(await bob.list(path, 25)).toEqual([]);
  // The key can be used again.
  const { status } = await bob.send(
    'POST',
    path,
    { input: message(file('data:text/plain;base64,aGk=')), stream: false },
    {
      'idempotency-key': 'once',
    },
  );
  expect(status).toBe(200);
});

test('files of this server count too: referencing one takes no room, storing it takes all of its bytes', async () => {
  const big = Buffer.alloc(16 * 1024 * 1024).toString('base64');
  const id = await bob.createSession('reader');
  const [kept] = await sentBack(bob, id, file(`data:text/plain;base64,${big}`));
  const own = kept?.data ?? '';
  const path = `/v1/agents/sessions/${id}/turns`;
  const twice = await bob.send('POST', path, { input: message(file(own), file(server.server.url + own)) });
  expect([twice.status, twice.body.error.code, twice.body.error.param]).toEqual([
    422,
    'file_unavailable',
    'input.0.content.1.data',
  ]);
  expect(twice.body.error.message).toMatch(/larger than 14680064 bytes/);
  const many = await bob.send('POST', path, { input: message(...Array.from({ length: 21 }, () => file(own))) });
  expect([many.status, many.body.error.param]).toEqual([400, 'input.0.content.20.data']);
});

test('with keys URLs cannot lead to private addresses unless that is allowed; without keys they can', async () => {
  const web = await site((_request, response) => void response.end('inside'));
  const keyed = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann' } });
  const client = new ApiClient(keyed.server.url, 'key-of-ann');
  await client.putAgent('reader', { model: { name: 'm' } });
  const id = await client.createSession('reader');
  for (const url of [web, web.replace('127.0.0.1', 'localhost'), web.replace('127.0.0.1', '2130706433')]) {
    const { status, body } = await client.send('POST', `/v1/agents/sessions/${id}/turns`, {
      input: message(file(url)),
    });
    expect([status, body.error.code]).toEqual([422, 'file_unavailable']);
    expect(body.error.message).toMatch(/is at a private address: set EVERTURN_ALLOW_PRIVATE_URLS=true/);
  }
  await keyed.stop();
  const keyless = await startTestServer();
  const { sessionId } = await keyless.chat();
  const [copy] = await sentBack(keyless.api, sessionId, file(web));
  expect(copy?.data).toBe(`data:application/octet-stream;base64,${Buffer.from('inside').toString('base64')}`);
  await keyless.stop();
});
