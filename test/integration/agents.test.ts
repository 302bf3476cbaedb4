import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { ApiClient } from '../support/api-client.ts';
import { say } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let admin: ApiClient;
beforeAll(async () => {
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann' } });
  admin = new ApiClient(server.api.url, 'key-of-root');
});
afterAll(() => server.stop());

interface Versioned {
  name: string;
  version: number;
  spec: { instructions?: string };
}

const spec = (instructions: string, model = 'm') => ({ model: { name: model }, instructions });
const pathOf = (name: string) => `/v1/agents/${encodeURIComponent(name)}`;
const statusOf = async (method: string, path: string, body?: unknown) => (await admin.send(method, path, body)).status;

test('agents are listed in byte order of their names, each in its newest version', async () => {
  const prefix = newId('req');
  const names = ['b', 'a/c', 'Z', 'a b', 'é', 'a'].map((name) => `${prefix}${name}`);
  for (const name of names) await admin.putAgent(encodeURIComponent(name), spec('old'));
  for (const name of names) await admin.putAgent(encodeURIComponent(name), spec('new'));
  const sorted = names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  for (const limit of [1, 4, 100]) {
    const all = await admin.list<Versioned>('/v1/agents', limit);
    const ours = all.filter(({ name }) => name.startsWith(prefix));
    expect(ours.map(({ name }) => name)).toEqual(sorted);
    expect(ours.map(({ version, spec: { instructions } }) => [version, instructions])).toEqual(
      names.map(() => [2, 'new']),
    );
    const reversed = await admin.list<Versioned>('/v1/agents?order=desc', limit);
    expect(reversed).toEqual(all.toReversed());
  }
  const { pagination } = await admin.get('/v1/agents?limit=1');
  const odd = await admin.send('GET', `/v1/agents?order=desc&page_token=${pagination.next_page_token}`);
  expect([odd.status, odd.body.error.code]).toEqual([400, 'invalid_page_token']);
});

test('versions are immutable, and can be listed and read', async () => {
  const name = newId('req');
  for (let i = 1; i <= 12; i++) await admin.putAgent(name, spec(`version ${i}`));
  const all = await admin.list<Versioned>(`${pathOf(name)}/versions`, 5);
  expect(all.map(({ version }) => version)).toEqual([12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
  expect(await admin.list(`${pathOf(name)}/versions?order=asc`, 7)).toEqual(all.toReversed());
  const { data } = await admin.get(`${pathOf(name)}/versions/3`);
  expect(data).toEqual(all[9]);
  expect(data).toMatchObject({ name, version: 3, spec: { instructions: 'version 3' } });
  const { data: newest } = await admin.get<{ data: Versioned }>(pathOf(name));
  expect((await admin.send('PUT', pathOf(name), newest.spec)).body.data.version).toBe(12);
  for (const odd of ['0', '13', '-1', '1.0', '01x', 'x', '99999999999999999999', '2147483648']) {
    expect(await statusOf('GET', `${pathOf(name)}/versions/${odd}`), odd).toBe(404);
  }
  expect(await statusOf('GET', `${pathOf('nobody')}/versions`)).toBe(404);
  expect(await statusOf('PUT', `${pathOf(name)}/versions/3`, spec('changed'))).toBe(405);
  const { pagination } = await admin.get(`${pathOf(name)}/versions?limit=1`);
  await admin.putAgent(`${name}2`, spec('other'));
  for (const url of [`${pathOf(`${name}2`)}/versions`, `${pathOf(name)}/versions?order=asc`]) {
    const mark = url.includes('?') ? '&' : '?';
    expect(await statusOf('GET', `${url}${mark}page_token=${pagination.next_page_token}`), url).toBe(400);
  }
});

test('a deleted agent accepts no new sessions, existing ones keep their versions, and version numbers are not reused', async () => {
  const name = newId('req');
  server.model.script(name, say('before'), say('after'), say('still'));
  await admin.putAgent(name, spec('first', name));
  const first = await admin.createSession(name);
  await admin.putAgent(name, spec('second', name));
  const second = await admin.createSession(name);
  await admin.turn(first, 'hi').done;
  const anns = new ApiClient(server.api.url, 'key-of-ann');
  expect((await anns.send('DELETE', pathOf(name))).status).toBe(403);
  expect(await statusOf('DELETE', pathOf(name))).toBe(204);
  expect(await statusOf('DELETE', pathOf(name))).toBe(404);
  expect(await statusOf('GET', pathOf(name))).toBe(404);
  const refused = await admin.send('POST', '/v1/agents/sessions', { agent_name: name });
  expect([refused.status, refused.body.error.code]).toEqual([404, 'agent_not_found']);
  for (const id of [first, second]) expect((await admin.turn(id, 'more').end()).status).toBe('done');
  const instructions = server.model.requestsTo(name).map(({ messages }) => messages[0]?.content);
  expect(instructions).toEqual(['first', 'first', 'second']);
  expect((await admin.get(`${pathOf(name)}/versions/1`)).data.spec.instructions).toBe('first');
  // Identical content is a new version here: a client that saw the old one also saw it deleted.
  const { data } = (await admin.send('PUT', pathOf(name), spec('second', name))).body;
  expect(data.version).toBe(3);
  expect((await admin.list<Versioned>(`${pathOf(name)}/versions`)).map(({ version }) => version)).toEqual([3, 2, 1]);
  expect((await admin.get(`/v1/agents/sessions/${second}`)).data.agent_version).toBe(2);
});

test('what may be a mistake in an agent is in the answers to those who write and read it', async () => {
  const name = newId('req');
  const given = { ...spec('For {{compny}}.'), variables: { company: 'ACME' }, agents: [name, 'ghost'] };
  const warnings = [expect.stringContaining('did you mean company?'), expect.stringMatching(/^agents\.1: .*ghost/)];
  const { status, body } = await admin.send('PUT', pathOf(name), given);
  expect([status, body.data.warnings]).toEqual([200, warnings]);
  expect((await admin.get(pathOf(name))).data.warnings).toEqual(warnings);
  const skills = [{ name: 'nowhere' }];
  expect(await statusOf('PUT', pathOf(name), { ...given, skills })).toBe(422);
});
