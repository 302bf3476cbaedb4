import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { ApiClient, folded } from '../support/api-client.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let ann: ApiClient;
let bob: ApiClient;
beforeAll(async () => {
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann,bob=key-of-bob' } });
  ann = new ApiClient(server.server.url, 'key-of-ann');
  bob = new ApiClient(server.server.url, 'key-of-bob');
  server.model.models = ['known'];
  await ann.putAgent('helper', { model: { name: 'known' } });
});
afterAll(() => server.stop());

const message = (content: unknown) => ({ input: [{ type: 'user.message', content }] });

test('requests without a key or with a wrong one are rejected; health needs none', async () => {
  for (const key of [undefined, 'wrong']) {
    const { status, body, headers } = await new ApiClient(server.server.url, key).send('GET', '/v1/agents/helper');
    expect([status, body.error.code]).toEqual([401, 'unauthenticated']);
    expect(headers.get('x-request-id')).toMatch(/^req_/);
  }
  for (const authorization of ['Basic key-of-ann', 'Bearer', 'Bearer ', 'key-of-ann', 'Bearer key-of-ann x']) {
    const { status, body } = await new ApiClient(server.server.url).send('GET', '/v1/agents/helper', undefined, {
      authorization,
    });
    expect([status, body.error.code], authorization).toEqual([401, 'unauthenticated']);
  }
  const lower = { authorization: 'bearer key-of-ann' };
  expect((await new ApiClient(server.server.url).send('GET', '/v1/agents/helper', undefined, lower)).status).toBe(200);
  const nobody = new ApiClient(server.server.url);
  expect(await nobody.get('/healthz')).toEqual({ status: 'ok' });
  // A dependency that does not answer in time is taken for one that does not work.
  await expect.poll(() => nobody.get('/readyz')).toEqual({ status: 'ready', problems: [], warnings: [] });
});

test('sessions of other subjects are reported as not found', async () => {
  const id = await ann.createSession('helper');
  const reader = ann.turn(id, 'hi');
  await reader.done;
  const base = `/v1/agents/sessions/${id}`;
  const turn = `${base}/turns/${await reader.turnId()}`;
  const requests: [string, string, unknown?][] = [
    ['GET', base],
    ['POST', `${base}/cancel`, {}],
    ['GET', `${base}/turns`],
    ['POST', `${base}/turns`, message('x')],
    ['GET', turn],
    ['GET', `${turn}/events`],
    ['POST', `${turn}/subscribe`, {}],
    ['GET', `${base}/events`],
    ['GET', `${base}/files/${'0'.repeat(64)}`],
  ];
  for (const [method, path, body] of requests) {
    const { status, body: answer } = await bob.send(method, path, body);
    expect([status, answer.error.code], path).toEqual([404, 'session_not_found']);
  }
  expect((await ann.get(base)).data.created_by_subject).toEqual({
    subject_id: 'ann',
    subject_type: 'user',
    subject_slug: 'ann',
  });
});

test('an Idempotency-Key is scoped to its subject', async () => {
  const create = async (client: ApiClient): Promise<string> => {
    const key = { 'idempotency-key': 'shared' };
    return (await client.send('POST', '/v1/agents/sessions', { agent_name: 'helper' }, key)).body.data.id;
  };
  const [hers, his] = [await create(ann), await create(bob)];
  expect(his).not.toBe(hers);
  expect([await create(ann), await create(bob)]).toEqual([hers, his]);
});

test('all errors have one format', async () => {
  const id = await ann.createSession('helper');
  const base = `/v1/agents/sessions/${id}`;
  const cases: [string, string, unknown, number, string, (string | undefined)?][] = [
    ['GET', '/nowhere', undefined, 404, 'not_found'],
    ['GET', '/v1/nowhere', undefined, 404, 'not_found'],
    ['PATCH', base, {}, 405, 'method_not_allowed'],
    ['PUT', `${base}/turns`, {}, 405, 'method_not_allowed'],
    ['POST', '/healthz', {}, 405, 'method_not_allowed'],
    ['GET', '/v1/agents/nobody', undefined, 404, 'agent_not_found'],
    ['GET', '/v1/agents/sessions/ses_nope', undefined, 404, 'session_not_found'],
    ['GET', `${base}/turns/turn_nope`, undefined, 404, 'turn_not_found'],
    ['GET', `${base}/files/${'0'.repeat(64)}`, undefined, 404, 'file_not_found'],
    ['GET', `${base}/files/..%2f..%2fcatalog.db`, undefined, 404, 'file_not_found'],
    ['POST', '/v1/agents/sessions', '{"agent_name": ', 400, 'invalid_json'],
    ['POST', '/v1/agents/sessions', 'null', 400, 'invalid_request'],
    ['POST', '/v1/agents/sessions', '[]', 400, 'invalid_request'],
    ['POST', '/v1/agents/sessions', {}, 400, 'invalid_request', 'agent_name'],
    ['POST', '/v1/agents/sessions', { agent_name: 7 }, 400, 'invalid_request', 'agent_name'],
    ['POST', '/v1/agents/sessions', { agent_name: 'nobody' }, 404, 'agent_not_found'],
    ['POST', `${base}/turns`, { input: 'hello' }, 400, 'invalid_request', 'input'],
    ['POST', `${base}/turns`, { input: [{ type: 'user.shout' }] }, 400, 'invalid_request', 'input.0.type'],
    ['POST', `${base}/turns`, message(7), 400, 'invalid_request', 'input.0.content'],
    ['POST', `${base}/turns`, message([{ type: 'text' }]), 400, 'invalid_request', 'input.0.content.0.text'],
    ['POST', `${base}/turns`, { ...message('x'), stream: 'yes' }, 400, 'invalid_request', 'stream'],
    ['POST', `${base}/turns`, { ...message('x'), previous_turn_id: 5 }, 400, 'invalid_request', 'previous_turn_id'],
    ['POST', `${base}/turns`, message(''), 422, 'empty_message', 'input.0.content'],
    ['POST', `${base}/turns`, message('  \n'), 422, 'empty_message', 'input.0.content'],
    ['POST', `${base}/turns`, message([]), 422, 'empty_message', 'input.0.content'],
    ['POST', `${base}/turns`, message([{ type: 'text', text: ' ' }]), 422, 'empty_message', 'input.0.content'],
    ['GET', `${base}/turns?limit=0`, undefined, 400, 'invalid_request', 'limit'],
    ['GET', `${base}/turns?limit=26`, undefined, 400, 'invalid_request', 'limit'],
    ['GET', `${base}/turns?page_token=abc`, undefined, 400, 'invalid_page_token', 'page_token'],
    [
      'GET',
      `${base}/events?page_token=${Buffer.from('{"turn":"turn_x","ordinal":1}').toString('base64url')}`,
      undefined,
      400,
      'invalid_page_token',
      'page_token',
    ],
  ];
  for (const data of [
    'nope',
    'data:image/png,AAAA',
    'data:;base64,AAAA',
    'data:image/png;base64,A',
    'data:image/png;base64,%%%%',
    `data:${'x'.repeat(128)}/png;base64,AAAA`,
  ]) {
    cases.push([
      'POST',
      `${base}/turns`,
      message([{ type: 'file', name: 'x', data }]),
      400,
      'invalid_data_uri',
      'input.0.content.0.data',
    ]);
  }
  for (const [method, path, body, status, code, param] of cases) {
    const answer = await ann.send(method, path, body);
    expect(
      [answer.status, answer.body.error.code, answer.body.error.param],
      `${method} ${path} ${JSON.stringify(body)}`,
    ).toEqual([status, code, param]);
    expect(answer.headers.get('content-type')).toMatch(/^application\/json/);
    expect(answer.headers.get('x-request-id')).toMatch(/^req_/);
    expect(answer.body.error.message.length).toBeGreaterThan(5);
  }
  const wrongMethod = await ann.send('PATCH', base, {});
  expect(wrongMethod.headers.get('allow')).toBe('DELETE, GET, HEAD, OPTIONS');
  expect(await ann.list(`${base}/turns`, 25)).toEqual([]);
});

test('a body above 30 MB is rejected, one below is accepted', async () => {
  const id = await ann.createSession('helper');
  const path = `/v1/agents/sessions/${id}/turns`;
  const { status, body } = await ann.send('POST', path, message('x'.repeat(31 * 1024 * 1024)));
  expect([status, body.error.code]).toEqual([413, 'body_too_large']);
  const file = Buffer.alloc(20 * 1024 * 1024, 1).toString('base64');
  const input = [
    { type: 'user.message', content: [{ type: 'file', name: 'big.bin', data: `data:application/x;base64,${file}` }] },
  ];
  expect((await ann.turn(id, input).end()).status).toBe('done');
  const parts = Array.from({ length: 1_000 }, () => ({ type: 'text', text: 'y'.repeat(500) }));
  const many = await ann.send('POST', path, message(parts));
  expect([many.status, many.body.error.code]).toEqual([422, 'content_too_large']);
});

test('a truncated body has its own error and no side effect', async () => {
  const { hostname, port } = new URL(server.server.url);
  const socket = connect(Number(port), hostname);
  socket.write(
    'POST /v1/agents/sessions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-of-ann\r\ncontent-length: 100\r\n\r\n{"agent',
  );
  await once(socket, 'connect');
  socket.destroy();
  expect((await ann.send('GET', '/v1/agents/helper')).status).toBe(200);
});

test('paths may have a prefix and encoded parameters, as SDKs send them', async () => {
  const prefixed = new ApiClient(`${server.server.url}/tenant/x`, 'key-of-ann');
  await prefixed.putAgent('team%2Fhelper', { model: { name: 'known' } });
  const id = await prefixed.createSession('team/helper');
  expect((await prefixed.get(`/v1/agents/sessions/${id}`)).data.agent_name).toBe('team/helper');
  expect((await prefixed.turn(id, 'hi').end()).status).toBe('done');
});

test('agents are versioned, and a session keeps the version that it started with', async () => {
  const spec = (instructions: string) => ({ model: { name: 'known' }, instructions });
  await ann.putAgent('poet', spec('Rhyme.'));
  const id = await ann.createSession('poet');
  await ann.putAgent('poet', spec('Rhyme.'));
  expect((await ann.get('/v1/agents/poet')).data).toMatchObject({ name: 'poet', version: 1, spec: spec('Rhyme.') });
  await ann.putAgent('poet', spec('Do not rhyme.'));
  expect((await ann.get('/v1/agents/poet')).data).toMatchObject({ version: 2, spec: spec('Do not rhyme.') });
  await ann.turn(id, 'hi').done;
  const later = await ann.createSession('poet');
  await ann.turn(later, 'hi').done;
  const said = server.model
    .requestsTo('known')
    .slice(-2)
    .map(({ messages }) => messages[0]?.content);
  expect(said).toEqual(['Rhyme.', 'Do not rhyme.']);
  expect((await ann.get(`/v1/agents/sessions/${id}`)).data.agent_version).toBe(1);
});

test('an agent that cannot run here is rejected with the reason', async () => {
  const model = { name: 'known' };
  const match = 'config.decision_policies.0.match';
  const allowing = (conditions: object) => ({ decision_policies: [{ match: conditions, decision: 'allow' }] });
  const cases: [object, number, string, string][] = [
    [{}, 400, 'invalid_request', 'model'],
    [{ model: {} }, 400, 'invalid_request', 'model.name'],
    [
      { model, mcp_servers: [{ type: 'inline', name: 'x', url: 'ftp://x' }] },
      400,
      'invalid_request',
      'mcp_servers.0.url',
    ],
    [{ model: { name: 'unknown' } }, 422, 'invalid_agent', 'model.name'],
    [
      { model, mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'nowhere' }] },
      422,
      'invalid_agent',
      'mcp_servers.0.name',
    ],
    [
      {
        model,
        mcp_servers: ['a', 'b', 'a'].map((name) => ({ type: 'inline', name, url: 'https://mcp.example.com/' })),
      },
      422,
      'invalid_agent',
      'mcp_servers.2.name',
    ],
    [
      {
        model,
        mcp_servers: [{ type: 'inline', name: 'a', url: 'https://mcp.example.com/', preload: false }],
        client_tools: [{ name: 'search_tools', input_schema: {} }],
      },
      422,
      'invalid_agent',
      'client_tools',
    ],
    [
      { model, skills: [{ type: 'git', url: 'https://git.example.com/', name: 'a' }] },
      422,
      'feature_not_available',
      'skills',
    ],
    [{ model, skills: [{ fqn: 'a/b' }] }, 422, 'invalid_agent', 'skills.0'],
    [{ model, skills: [{ description: 'd', content: 'c' }] }, 422, 'invalid_agent', 'skills.0'],
    [{ model, skills: [{ name: 'own', content: 'c' }] }, 422, 'invalid_agent', 'skills.0'],
    [
      { model, skills: [1, 2].map(() => ({ name: 'own', description: 'd', content: 'c' })) },
      422,
      'invalid_agent',
      'skills.1',
    ],
    [{ model, skills: [{ name: '../up' }] }, 400, 'invalid_request', 'skills.0.name'],
    [{ model, config: { sandbox: { enabled: true } } }, 422, 'feature_not_available', 'config.sandbox'],
    [{ model, config: allowing({}) }, 400, 'invalid_request', match],
    [
      {
        model,
        client_tools: [
          { name: 'a', input_schema: {} },
          { name: 'a', input_schema: {} },
        ],
      },
      422,
      'invalid_agent',
      'client_tools',
    ],
  ];
  for (const [spec, status, code, param] of cases) {
    const answer = await ann.send('PUT', '/v1/agents/bad', spec);
    expect([answer.status, answer.body.error.code, answer.body.error.param], JSON.stringify(spec)).toEqual([
      status,
      code,
      param,
    ]);
  }
  expect((await ann.send('GET', '/v1/agents/bad')).status).toBe(404);
  const misspelt = await ann.send('PUT', '/v1/agents/bad', { model, config: allowing({ tols: 'get_*' }) });
  expect(misspelt.body.error.message).toBe(`${match}: unknown key "tols": do you mean "tool"?`);
  const reserved = await ann.send('PUT', '/v1/agents/sandbox', { model });
  expect([reserved.status, reserved.body.error.code]).toEqual([422, 'invalid_agent']);
  // Turned off, or left to the server, each is accepted.
  await ann.putAgent('modest', { model, skills: [], config: { sandbox: { enabled: false }, generative_ui: null } });
});

test('a model that is no longer available is reported before the turn starts', async () => {
  server.model.models = ['known', 'fleeting'];
  await ann.putAgent('late', { model: { name: 'fleeting' } });
  const id = await ann.createSession('late');
  expect((await ann.turn(id, 'hi').end()).status).toBe('done');
  // Another server with the same catalog, whose provider no longer has the model.
  const env = { EVERTURN_API_KEYS: 'ann:admin=key-of-ann', DATABASE_URL: server.database.url };
  const later = await startTestServer({ env });
  later.model.models = ['known'];
  const there = new ApiClient(later.server.url, 'key-of-ann');
  const { status, body } = await there.send('POST', `/v1/agents/sessions/${id}/turns`, message('hi'));
  expect([status, body.error.code, body.error.param]).toEqual([422, 'invalid_agent', 'agent.model.name']);
  const session = await there.send('POST', '/v1/agents/sessions', { agent_name: 'late' });
  expect([session.status, session.body.error.param]).toEqual([422, 'agent.model.name']);
  await later.stop();
  expect((await ann.list(`/v1/agents/sessions/${id}/turns`, 25)).length).toBe(1);
});

test('drafts are sessions with their own agent, which can change between turns', async () => {
  const spec = (instructions: string) => ({ model: { name: 'known' }, instructions });
  const { status, body } = await ann.send('POST', '/v1/agents/draft-sessions', {
    agent_spec: spec('One.'),
    agent_name: 'idea',
  });
  expect(status).toBe(200);
  const draft = body.data;
  expect(draft).toMatchObject({ type: 'session/draft', agent_name: 'idea', agent_spec: spec('One.'), title: null });
  const path = `/v1/agents/draft-sessions/${draft.id}`;
  expect((await ann.get(path)).data).toEqual(draft);
  await ann.turn(draft.id, 'first words').done;
  const patched = await ann.send('PATCH', path, { agent_spec: spec('Two.') });
  expect(patched.body.data).toMatchObject({ agent_spec: spec('Two.'), title: 'first words' });
  const touched = await ann.send('PATCH', path, {});
  expect(touched.body.data.agent_spec).toEqual(spec('Two.'));
  expect(touched.body.data.updated_at > patched.body.data.updated_at).toBe(true);
  await ann.turn(draft.id, 'more').done;
  const said = server.model
    .requestsTo('known')
    .slice(-2)
    .map(({ messages }) => messages[0]?.content);
  expect(said).toEqual(['One.', 'Two.']);
  // A draft is not found as a session, and a session not as a draft.
  expect((await ann.send('GET', `/v1/agents/sessions/${draft.id}`)).status).toBe(404);
  const session = await ann.createSession('helper');
  expect((await ann.send('GET', `/v1/agents/draft-sessions/${session}`)).status).toBe(404);
  expect((await ann.send('PATCH', `/v1/agents/draft-sessions/${session}`, {})).status).toBe(404);
  const bad = await ann.send('PATCH', path, { agent_spec: { model: { name: 'unknown' } } });
  expect([bad.status, bad.body.error.param]).toEqual([422, 'agent_spec.model.name']);
  expect((await bob.send('GET', path)).status).toBe(404);
});

test('the routes of sessions also exist for drafts', async () => {
  const { body } = await ann.send('POST', '/v1/agents/draft-sessions', { agent_spec: { model: { name: 'known' } } });
  const draft = `/v1/agents/sessions/${body.data.id}`;
  const reader = ann.turn(body.data.id, 'hi');
  const events = folded(await reader.done);
  const turnId = await reader.turnId();
  expect(folded(await ann.subscribe(body.data.id, turnId).done)).toEqual(events);
  expect((await ann.list<{ event: object }>(`${draft}/events`)).map(({ event }) => event).reverse()).toEqual(events);
  expect(await ann.list(`${draft}/turns/${turnId}/events`)).toEqual(events.slice(1, -1));
  expect((await ann.get(`${draft}/turns/${turnId}`)).data.state.status).toBe('done');
  expect((await ann.send('POST', `${draft}/cancel`, { close: true })).body).toEqual({});
  const closed = await ann.send('POST', `${draft}/turns`, message('more'));
  expect([closed.status, closed.body.error.code]).toEqual([409, 'session_closed']);
});

test('metadata and title are returned with the session; a given title is not replaced', async () => {
  const headers = { 'x-tfy-metadata': '{"team": "blue", "n": 1}' };
  const { body } = await ann.send('POST', '/v1/agents/sessions', { agent_name: 'helper', title: 'Mine' }, headers);
  expect(body.data).toMatchObject({ title: 'Mine', metadata: { team: 'blue', n: 1 } });
  await ann.turn(body.data.id, 'something else').done;
  expect((await ann.get(`/v1/agents/sessions/${body.data.id}`)).data).toMatchObject({ title: 'Mine' });
  const send = (metadata: Buffer) =>
    ann.send(
      'POST',
      '/v1/agents/sessions',
      { agent_name: 'helper' },
      { 'x-tfy-metadata': metadata.toString('latin1') },
    );
  const ofBytes = (bytes: number) => ({ x: `${'é'.repeat((bytes - 10) / 2)}${bytes % 2 ? 'aaa' : 'aa'}` });
  for (const metadata of [{ name: 'Zoë ☃ 😀' }, ofBytes(4096), { x: 'y'.repeat(4096 - 8) }]) {
    const answer = await send(Buffer.from(JSON.stringify(metadata)));
    expect(answer.body.data?.metadata).toEqual(metadata);
  }
  const bad = ['{', '[]', '"x"', 'null', JSON.stringify(ofBytes(4097)), JSON.stringify({ x: 'y'.repeat(4097 - 8) })];
  for (const metadata of [...bad.map((text) => Buffer.from(text)), Buffer.from('{"x": "\xe9"}', 'latin1')]) {
    const answer = await send(metadata);
    expect([answer.status, answer.body.error?.param]).toEqual([400, 'x-tfy-metadata']);
  }
});

test('agents from a folder exist after the start; an invalid one stops the start and its file is named', async () => {
  const folder = path.join(server.dataDir, 'agents');
  await mkdir(folder);
  await writeFile(path.join(folder, 'greeter.json'), JSON.stringify({ model: { name: 'm' }, instructions: 'Greet.' }));
  const other = await startTestServer({ env: { EVERTURN_AGENTS: folder } });
  expect((await other.api.get('/v1/agents/greeter')).data.spec.instructions).toBe('Greet.');
  await other.stop();
  await writeFile(path.join(folder, 'broken.json'), JSON.stringify({ model: { name: 7 } }));
  await expect(startTestServer({ env: { EVERTURN_AGENTS: folder } })).rejects.toThrow(/broken\.json: model\.name/);
});

test('ids cannot be predicted from the state of Math.random', async () => {
  const random = vi.spyOn(Math, 'random').mockReturnValue(0.5);
  onTestFinished(() => random.mockRestore());
  const { headers } = await new ApiClient(server.server.url).send('GET', '/healthz');
  const session = await ann.createSession('helper');
  const draft = await ann.send('POST', '/v1/agents/draft-sessions', { agent_spec: { model: { name: 'known' } } });
  const turn = ann.turn(session, 'hi');
  const ids = [headers.get('x-request-id'), session, draft.body.data.id, await turn.turnId()];
  await turn.done;
  for (const id of ids) {
    expect(id).toMatch(/^(req|ses|turn)_[0-9a-z]{26}$/);
    expect(new Set(String(id).slice(-16)).size, id).toBeGreaterThan(1);
  }
});
