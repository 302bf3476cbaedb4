import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../../src/engine/new-id.ts';
import { ApiClient, type Answer } from '../../support/api-client.ts';
import { say } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

let server: TestServer;
let admin: ApiClient;
let user: ApiClient;
beforeAll(async () => {
  const keys = `k1:${randomBytes(32).toString('base64')}`;
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann', EVERTURN_ENCRYPTION_KEYS: keys },
  });
  admin = new ApiClient(server.api.url, 'key-of-root');
  user = new ApiClient(server.api.url, 'key-of-ann');
});
afterAll(() => server.stop());

const AGENTS = '/api/v2/agents';
const prefix = () => newId('req').replaceAll('_', '-');
const agent = (name: string, more: object = {}) => ({
  name,
  description: 'A desk',
  environments: [],
  model: 'm',
  ...more,
});
const create = async (name: string, more: object = {}) => {
  const created = await admin.send('POST', AGENTS, agent(name, more));
  expect(created.status, JSON.stringify(created.body)).toBe(201);
  return created;
};
type Refused = Answer<{ detail: { type: string; loc?: unknown[] }[] }>;
const problem = ({ status, body }: Refused) => [status, body.detail[0]?.type, body.detail[0]?.loc];
const etagOf = ({ headers }: Answer) => headers.get('etag');

test('each change of an agent is a revision, which can be listed, read and restored', async () => {
  const name = `acme/${prefix()}`;
  const path = `${AGENTS}/${name}`;
  expect(etagOf(await create(name, { instructions: 'one' }))).toBe('"1"');
  expect(problem(await admin.send('POST', AGENTS, agent(name)))).toEqual([409, 'already_exists', undefined]);
  const put = await admin.send('PUT', `${path}?message=Shorter`, agent(name, { instructions: 'two' }));
  expect([put.status, etagOf(put), put.body]).toEqual([200, '"2"', agent(name, { instructions: 'two' })]);
  const same = await admin.send('PUT', path, agent(name, { instructions: 'two' }));
  expect([same.status, etagOf(same)]).toEqual([200, '"2"']);
  const patched = await admin.send('PATCH', path, { description: 'Another desk', instructions: null });
  expect([patched.status, etagOf(patched)]).toEqual([200, '"3"']);
  expect(patched.body).toEqual(agent(name, { description: 'Another desk' }));
  const read = await user.send('GET', `${AGENTS}/${encodeURIComponent(name)}`);
  expect([read.body, etagOf(read)]).toEqual([patched.body, '"3"']);
  expect(await user.get(`${path}?revision=1`)).toEqual(agent(name, { instructions: 'one' }));
  const restored = await admin.send('POST', `${path}/revisions/1/restore`);
  expect([restored.status, etagOf(restored), restored.body.instructions]).toEqual([200, '"4"', 'one']);
  expect(etagOf(await admin.send('POST', `${path}/revisions/1/restore`))).toBe('"4"');
  const { items, total } = await user.get(`${path}/revisions?size=3`);
  expect([items.length, total]).toEqual([3, 4]);
  expect(items).toMatchObject([
    { number: 4, created_by: 'root', message: 'Restored from v1', restored_from: 1 },
    { number: 3, message: null, restored_from: null },
    { number: 2, message: 'Shorter' },
  ]);
  const oldest = await user.get(`${path}/revisions?sort=number&size=1`);
  expect(oldest.items).toMatchObject([{ number: 1, created_at: expect.any(String) }]);
  for (const odd of [`${path}?revision=5`, `${path}/revisions/5`, `${AGENTS}/nobody`, `${AGENTS}/nobody/revisions`]) {
    expect(problem(await user.send('GET', odd)), odd).toEqual([404, 'agent_not_found', undefined]);
  }
  expect((await admin.send('POST', `${path}/revisions/5/restore`)).status).toBe(404);
  expect(problem(await admin.send('PUT', path, agent('other')))).toEqual([422, 'invalid_request', ['body', 'name']]);
  expect((await admin.send('PUT', `${AGENTS}/nobody`, agent('nobody'))).status).toBe(404);
});

test('a change that is based on an earlier revision is refused', async () => {
  const name = prefix();
  const path = `${AGENTS}/${name}`;
  await create(name);
  await admin.send('PATCH', path, { description: 'two' });
  for (const [method, url, body] of [
    ['PUT', path, agent(name, { description: 'three' })],
    ['PATCH', path, { description: 'three' }],
    ['POST', `${path}/revisions/1/restore`],
    ['DELETE', path],
  ] as const) {
    const refused = await admin.send(method, url, body, { 'if-match': '"1"' });
    expect(problem(refused), method).toEqual([412, 'precondition_failed', undefined]);
  }
  expect((await user.get(path)).description).toBe('two');
  expect((await admin.send('PATCH', path, { description: 'three' }, { 'if-match': '"2"' })).status).toBe(200);
  expect((await admin.send('PATCH', path, { description: 'four' }, { 'if-match': '*' })).status).toBe(200);
  expect((await admin.send('PATCH', path, {}, { 'if-match': 'abc' })).status).toBe(422);
  expect((await admin.send('DELETE', path, undefined, { 'if-match': '"4"' })).status).toBe(204);
  expect((await user.send('GET', path)).status).toBe(404);
  expect(etagOf(await create(name))).toBe('"5"');
});

test('none of several concurrent changes is lost: each is a revision, or refused', async () => {
  const name = prefix();
  const path = `${AGENTS}/${name}`;
  await create(name, { tools: [] });
  const words = ['one', 'two', 'three', 'four', 'five'];
  const fields = ['description', 'instructions', 'model', 'description', 'instructions'];
  const changes = words.map(async (word, i) => admin.send('PATCH', path, { [fields[i] ?? '']: word }));
  const answers = await Promise.all(changes);
  const revisions = answers
    .filter(({ status }) => status === 200)
    .map((answer) => Number(etagOf(answer)?.slice(1, -1)));
  expect(revisions.toSorted((a, b) => a - b)).toEqual(revisions.map((_, i) => i + 2));
  expect(revisions.length).toBeGreaterThan(0);
  for (const { status } of answers) expect([200, 412]).toContain(status);
  const merged = answers
    .filter(({ status }) => status === 200)
    .find((one) => etagOf(one) === `"${revisions.length + 1}"`);
  expect(await user.get(path)).toEqual(merged?.body);
  expect((await user.get(`${path}/revisions`)).total).toBe(revisions.length + 1);
});

test('both APIs have one registry: each shows the agents of the other, and runs them', async () => {
  const name = prefix();
  server.model.script(name, say('First.'), say('Second.'));
  await create(name, { model: name, instructions: 'Be brief.', tools: [{ name: 'look', description: 'Looks' }] });
  const { data } = await admin.get(`/v1/agents/${name}`);
  expect(data).toMatchObject({
    version: 1,
    spec: { model: { name }, instructions: 'Be brief.', client_tools: [{ name: 'look' }] },
  });
  const answer = await user.turn(await user.createSession(name), 'Hello').end();
  expect(answer).toMatchObject({ status: 'done', output: { content: 'First.' } });

  // The next version comes from the Sessions API.
  const tools = [{ name: 'get-order', input_schema: { type: 'object' } }];
  await admin.putAgent(name, { model: { name }, instructions: 'Be long.', client_tools: tools });
  const shown = await user.send('GET', `${AGENTS}/${name}?resolve=true`);
  expect([shown.status, etagOf(shown)]).toEqual([200, null]);
  expect(shown.body).toMatchObject({ name, description: '', instructions: 'Be long.', tools: [{ name: 'get-order' }] });
  expect(await user.get(`${AGENTS}/${name}?revision=1`)).toMatchObject({ instructions: 'Be brief.' });
  expect((await user.get(`${AGENTS}/${name}/revisions`)).items).toMatchObject([{ created_by: null }, { number: 1 }]);
  const refused = await admin.send('PATCH', `${AGENTS}/${name}`, { description: 'x' });
  expect([refused.status, refused.body.message]).toEqual([422, expect.stringContaining('Sessions API')]);
  const odd = `Desk ${name}`;
  await admin.putAgent(encodeURIComponent(odd), { model: { name }, client_tools: tools });
  expect(await user.get(`${AGENTS}/${encodeURIComponent(odd)}`)).toMatchObject({ name: odd });
  const { status, body } = await user.send('POST', '/api/v2/sessions', { agent: odd, messages: 'Hello' });
  expect([status, body.request.agent.name]).toEqual([201, odd]);
  expect((await user.get(`/api/v2/sessions/${body.id}`)).request.agent.name).toBe(odd);
});

test('a session names an agent at its newest revision, or at another one', async () => {
  const name = prefix();
  await create(name, { model: name, instructions: 'one' });
  await admin.send('PATCH', `${AGENTS}/${name}`, { instructions: 'two' });
  const start = async (reference: string) => {
    const { body } = await user.send('POST', '/api/v2/sessions', { agent: reference });
    return [body.request?.agent.instructions, body.agent_revision];
  };
  expect(await start(name)).toEqual(['two', 2]);
  expect(await start(`${name}:1`)).toEqual(['one', 1]);
  for (const reference of [`${name}:3`, `${name}:0`, `${name}:99999999999`, 'nobody']) {
    const missing = await user.send('POST', '/api/v2/sessions', { agent: reference });
    expect(problem(missing), reference).toEqual([404, 'agent_not_found', undefined]);
  }
});

test('names in an agent are resolved, when it is read with resolve and when a session is created', async () => {
  const own = prefix();
  const skill = { name: `acme/${own}`, description: 'For refunds', body: 'Up to 50 EUR.' };
  await admin.send('POST', '/api/v2/skills', skill);
  const environment = (await admin.send('POST', '/api/v2/environments', { kind: 'web', id: own })).body;
  await create(`${own}-helper`, { description: 'Helps' });
  const named = { environments: [own], skills: [skill.name], subagents: [`${own}-helper`] };
  await create(own, named);
  const path = `${AGENTS}/${own}`;
  expect(await user.get(path)).toMatchObject(named);
  expect(await user.get(`${path}?resolve=true`)).toMatchObject({
    environments: [environment],
    skills: [skill],
    subagents: [{ name: `${own}-helper`, description: 'Helps' }],
  });
  await create(`${own}-skilled`, { skills: [skill.name], model: own });
  server.model.script(own, say('Done.'));
  const body = { agent: `${own}-skilled`, messages: 'Hello' };
  const session = await user.send('POST', '/api/v2/sessions', body);
  expect(session.body.request.agent).toMatchObject({ skills: [skill] });
  await admin.send('PATCH', `/api/v2/skills/${skill.name}`, { body: 'Nothing.' });
  const later = await user.send('POST', '/api/v2/sessions', { agent: `${own}-skilled` });
  expect(later.body.request.agent.skills[0].body).toBe('Nothing.');
  expect((await user.get(`/api/v2/sessions/${session.body.id}`)).request.agent.skills).toEqual([skill]);
});

test('an unknown name is refused at its place', async () => {
  const own = prefix();
  const refused = async (more: object, loc: unknown[]) => {
    const written = await admin.send('POST', AGENTS, agent(own, more));
    expect([written.status, written.body.detail[0].loc], JSON.stringify(more)).toEqual([422, ['body', ...loc]]);
    const inline = await user.send('POST', '/api/v2/sessions', { agent: agent(own, more) });
    expect([inline.status, inline.body.detail[0].loc], JSON.stringify(more)).toEqual([422, ['body', 'agent', ...loc]]);
  };
  const web = (id: string) => ({ kind: 'web', id });
  await refused({ environments: ['nowhere'] }, ['environments', 0]);
  await refused({ environments: [web('a'), web('b')] }, ['environments', 1]);
  await refused({ skills: ['nothing'] }, ['skills', 0]);
  await refused({ subagents: [agent('a'), 'nobody'] }, ['subagents', 1]);
  await refused({ subagents: [agent('a', { subagents: ['nobody'] })] }, ['subagents', 0, 'subagents', 0]);
  await refused(
    {
      tools: [
        { name: 'a', description: '' },
        { name: 'a', description: '' },
      ],
    },
    ['tools'],
  );
  await refused({ answer_format: { type: 'nothing' } }, ['answer_format']);
  await refused({ colour: 'red' }, []);
  await refused({ model: null }, ['model']);
  // A part that was deleted since is named as missing.
  const skill = { name: own, description: 'x', body: 'x' };
  await admin.send('POST', '/api/v2/skills', skill);
  await create(own, { skills: [own] });
  await admin.send('DELETE', `/api/v2/skills/${own}`);
  const missing = await user.send('POST', '/api/v2/sessions', { agent: own });
  expect([missing.status, missing.body.detail[0].loc]).toEqual([422, ['body', 'agent']]);
  expect(missing.body.message).toContain(own);
});

test('sub-agents do not lead back to themselves, and are nested at most 16 deep', async () => {
  const own = prefix();
  await create(`${own}-a`);
  await create(`${own}-b`, { subagents: [`${own}-a`] });
  const cycle = await admin.send('PATCH', `${AGENTS}/${own}-a`, { subagents: [`${own}-b`] });
  expect([cycle.status, cycle.body.detail[0].loc]).toEqual([422, ['body', 'subagents', 0]]);
  expect(cycle.body.message).toMatch(/-a → .*-b → .*-a/);
  const nested = (depth: number): object => agent('x', depth > 0 ? { subagents: [nested(depth - 1)] } : {});
  expect((await admin.send('POST', AGENTS, { ...nested(16), name: `${own}-deep` })).status).toBe(201);
  expect((await admin.send('POST', AGENTS, { ...nested(17), name: `${own}-deeper` })).status).toBe(422);
  // 20 sub-agents with 20 each.
  const wide = (depth: number): object =>
    agent('x', depth > 0 ? { subagents: Array.from({ length: 20 }, () => wide(depth - 1)) } : {});
  expect((await admin.send('POST', AGENTS, { ...wide(2), name: `${own}-wide` })).status).toBe(422);
});

test('agents are filtered, searched, sorted and paged', async () => {
  const own = prefix();
  for (const [i, description] of ['Refunds', 'Returns', 'refunding'].entries()) {
    await create(`${own}-${i}`, { description });
  }
  await admin.putAgent(`${own}-3`, { model: { name: 'm' } });
  const list = async (query: string) => user.get(`${AGENTS}?agent_name=${own.toUpperCase()}&${query}`);
  const namesIn = async (query: string) =>
    (await list(query)).items.map(({ name }: { name: string }) => Number(name.slice(own.length + 1)));
  expect(await namesIn('')).toEqual([3, 2, 1, 0]);
  expect(await namesIn('sort=agent_name&size=2&page=2')).toEqual([2, 3]);
  expect(await namesIn('search=refund&sort=agent_name')).toEqual([0, 2]);
  expect(await list('search=nothing')).toEqual({ items: [], total: 0, page: 1 });
  await admin.send('PATCH', `${AGENTS}/${own}-0`, { description: 'New' });
  const revisions = (await list('include=revision&sort=agent_name')).items;
  expect(revisions.map(({ revision }: { revision: number }) => revision)).toEqual([2, 1, 1, 1]);
  expect((await list('reserved=true')).total).toBe(0);
  expect((await list('reserved=False')).total).toBe(4);
});

test('only admins write agents, and none to the reserved namespace', async () => {
  const name = prefix();
  await create(name);
  const path = `${AGENTS}/${name}`;
  for (const [method, url, body] of [
    ['POST', AGENTS, agent(name)],
    ['PUT', path, agent(name)],
    ['PATCH', path, {}],
    ['POST', `${path}/revisions/1/restore`],
    ['DELETE', path],
  ] as const) {
    expect(problem(await user.send(method, url, body)), method).toEqual([403, 'forbidden', undefined]);
  }
  expect((await admin.send('POST', AGENTS, agent(`h/${name}`))).status).toBe(403);
  expect((await admin.send('DELETE', `${AGENTS}/h/${name}`)).status).toBe(403);
  expect((await admin.send('POST', AGENTS, agent(`${name}/revisions`))).status).toBe(422);
});

test('agents and their parts are stored encrypted', async () => {
  const own = prefix();
  const secret = { description: 'secret-description', body: 'secret-body' };
  await admin.send('POST', '/api/v2/skills', { name: own, ...secret });
  await admin.send('POST', `${AGENTS}?message=secret-message`, agent(own, { description: secret.description }));
  const { rows } = server.database;
  const stored = JSON.stringify([
    await rows.selectFrom('agent_parts').selectAll().where('name', '=', own).execute(),
    await rows.selectFrom('agent_definitions').selectAll().where('agent_name', '=', own).execute(),
  ]);
  expect(stored).toContain('sealed:k1:');
  expect(stored).not.toContain('secret');
});
