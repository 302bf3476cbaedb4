import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../../src/engine/new-id.ts';
import { ApiClient } from '../../support/api-client.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

let server: TestServer;
let admin: ApiClient;
let user: ApiClient;
beforeAll(async () => {
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann' } });
  admin = new ApiClient(server.api.url, 'key-of-root');
  user = new ApiClient(server.api.url, 'key-of-ann');
});
afterAll(() => server.stop());

const skill = (name: string, more: object = {}) => ({ name, description: 'For refunds', body: '# Refunds', ...more });
const prefix = () => newId('req').replaceAll('_', '-');
const codeOf = ({ status, body }: { status: number; body: { detail: { type: string; loc?: unknown[] }[] } }) => [
  status,
  body.detail[0]?.type,
  body.detail[0]?.loc,
];

test('a skill is created, read, replaced, changed and deleted, also under a name with a namespace', async () => {
  const name = `acme/${prefix()}`;
  const path = `/api/v2/skills/${name}`;
  expect(await admin.send('POST', '/api/v2/skills', skill(name))).toMatchObject({ status: 201, body: skill(name) });
  expect(codeOf(await admin.send('POST', '/api/v2/skills', skill(name)))).toEqual([409, 'already_exists', undefined]);
  for (const url of [path, `/api/v2/skills/${encodeURIComponent(name)}`]) {
    expect(await user.get(url)).toEqual(skill(name));
  }
  const source = 'https://example.com/refunds.md';
  const replaced = await admin.send('PUT', path, skill(name, { source, url_pattern: 'refunds' }));
  expect(replaced).toMatchObject({ status: 200, body: { source, url_pattern: 'refunds' } });
  const patched = await admin.send('PATCH', path, { body: 'New', url_pattern: null });
  expect(patched.body).toEqual(skill(name, { body: 'New', source }));
  expect(await user.get(path)).toEqual(patched.body);
  expect(codeOf(await admin.send('PUT', path, skill('other')))).toEqual([422, 'invalid_request', ['body', 'name']]);
  expect(codeOf(await admin.send('PATCH', path, { name: 'other' }))[0]).toBe(422);
  expect((await admin.send('DELETE', path)).status).toBe(204);
  for (const [method, body] of [['GET'], ['PUT', skill(name)], ['PATCH', {}], ['DELETE']] as const) {
    expect(codeOf(await admin.send(method, path, body)), method).toEqual([404, 'skill_not_found', undefined]);
  }
});

test('an environment keeps the fields of its kind, and its other fields are refused', async () => {
  const id = prefix();
  const path = `/api/v2/environments/${id}`;
  const created = await admin.send('POST', '/api/v2/environments', { kind: 'web', id, mode: { type: 'text' } });
  const web = {
    kind: 'web',
    id,
    host: 'cloud',
    start_url: 'https://www.bing.com',
    headless: false,
    mode: { type: 'text', chunk_size: 20_000 },
    use_default_browser_profile: false,
    persist_browser_profile: false,
  };
  expect([created.status, created.body]).toEqual([201, web]);
  const changed = await admin.send('PATCH', path, { start_url: 'https://shop.example.com', mode: null });
  const mode = { type: 'visual', width: 1_200, height: 1_200, markdown: false };
  expect(changed.body).toEqual({ ...web, start_url: 'https://shop.example.com', mode });
  const loc = ['body', 'settle_s'];
  expect(codeOf(await admin.send('PATCH', path, { settle_s: -1 }))).toEqual([422, 'too_small', loc]);
  expect(codeOf(await admin.send('PATCH', path, { image: 'x' }))).toEqual([422, 'unrecognized_keys', ['body']]);
  expect(codeOf(await admin.send('PATCH', path, { id: 'other' }))).toEqual([422, 'invalid_request', ['body', 'id']]);
  expect(await user.get(path)).toEqual(changed.body);
  const desktop = { kind: 'desktop', id, host: 'cloud' };
  expect((await admin.send('PUT', path, desktop)).body).toEqual(desktop);
  for (const kind of ['android', 'workstation']) {
    expect((await admin.send('POST', '/api/v2/environments', { kind, id: `${id}-${kind}` })).status).toBe(201);
  }
  const profile = { kind: 'web', id: `${id}-2`, browser_profile_id: 'p', use_default_browser_profile: true };
  expect(codeOf(await admin.send('POST', '/api/v2/environments', profile))[2]).toEqual(['body', 'browser_profile_id']);
  expect(codeOf(await admin.send('POST', '/api/v2/environments', { kind: 'moon', id }))[0]).toBe(422);
  expect(codeOf(await admin.send('POST', '/api/v2/environments', { kind: 'web', id: 'A b' }))[2]).toEqual([
    'body',
    'id',
  ]);
});

test('lists are filtered, searched, sorted and paged', async () => {
  const own = prefix();
  const words = ['Refunds', 'Returns', 'refunding', 'Invoices', '100%'];
  for (const [i, word] of words.entries()) {
    await admin.send('POST', '/api/v2/skills', skill(`${own}-${i}`, { description: `About ${word}` }));
  }
  const list = async (query: string) => user.get(`/api/v2/skills?name=${own.toUpperCase()}&${query}`);
  const namesIn = async (query: string) =>
    (await list(query)).items.map(({ name }: { name: string }) => Number(name.slice(own.length + 1)));
  expect(await namesIn('')).toEqual([4, 3, 2, 1, 0]);
  expect(await namesIn('sort=name')).toEqual([0, 1, 2, 3, 4]);
  expect(await namesIn('sort=-name&size=2')).toEqual([4, 3]);
  expect(await namesIn('sort=created_at&size=2&page=2')).toEqual([2, 3]);
  expect(await namesIn('search=REFUND&sort=name')).toEqual([0, 2]);
  expect(await namesIn('search=0%25')).toEqual([4]);
  expect(await namesIn('sort=["name"]&search=about&size=2&page=2')).toEqual([2, 3]);
  expect(await list('search=refund&size=1')).toMatchObject({ items: [{}], total: 2, page: 1 });
  expect(await list('size=2&page=9')).toEqual({ items: [], total: 5, page: 9 });
  expect((await user.get('/api/v2/skills?name=%25')).total).toBe(0);
  for (const query of ['size=1001', 'size=0', 'page=0', 'sort=body', 'page=x']) {
    expect((await user.send('GET', `/api/v2/skills?${query}`)).status, query).toBe(422);
  }
  for (const kind of ['web', 'desktop'])
    await admin.send('POST', '/api/v2/environments', { kind, id: `${own}-${kind}` });
  const environments = await user.get(`/api/v2/environments?id=${own}&kind=desktop`);
  expect(environments).toMatchObject({ items: [{ kind: 'desktop', id: `${own}-desktop` }], total: 1 });
});

test('a page whose items are too large together is refused, and its items can be had in smaller ones', async () => {
  const own = prefix();
  const body = 'x'.repeat(65_536);
  for (let i = 0; i < 130; i++) await admin.send('POST', '/api/v2/skills', skill(`${own}-${i}`, { body }));
  const path = `/api/v2/skills?name=${own}`;
  expect(codeOf(await user.send('GET', `${path}&size=130`))).toEqual([413, 'page_too_large', undefined]);
  expect((await user.get(`${path}&size=60&page=3`)).items).toHaveLength(10);
});

test('only admins write, and no caller writes to the reserved namespace', async () => {
  const name = prefix();
  for (const [method, path, body] of [
    ['POST', '', skill(name)],
    ['PUT', `/${name}`, skill(name)],
    ['PATCH', `/${name}`, {}],
    ['DELETE', `/${name}`],
  ] as const) {
    expect(codeOf(await user.send(method, `/api/v2/skills${path}`, body)), method).toEqual([
      403,
      'forbidden',
      undefined,
    ]);
  }
  const reserved = `h/${name}`;
  for (const [method, path, body] of [
    ['POST', '', skill(reserved)],
    ['PUT', `/${reserved}`, skill(reserved)],
    ['PATCH', `/${reserved}`, {}],
    ['DELETE', `/${reserved}`],
  ] as const) {
    expect((await admin.send(method, `/api/v2/skills${path}`, body)).status, method).toBe(403);
  }
  expect((await admin.send('POST', '/api/v2/environments', { kind: 'web', id: reserved })).status).toBe(403);
});
