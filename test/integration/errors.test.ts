import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { exchange } from '../support/raw-http.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let ann: ApiClient;
beforeAll(async () => {
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann' } });
  ann = new ApiClient(server.server.url, 'key-of-ann');
  await ann.putAgent('helper', { model: { name: 'm' } });
});
afterAll(() => server.stop());

/** A request of Ann, head and body separately. */
function head(method: string, path: string, ...headers: string[]): string {
  const lines = ['host: x', 'authorization: Bearer key-of-ann', 'connection: close', ...headers];
  return `${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`;
}

const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`;

test('errors of Node and Express have the format of all errors', async () => {
  const garbage = Buffer.from('this is not compressed');
  const length = `content-length: ${garbage.length}`;
  const cases: [string, (string | Uint8Array)[], number, string][] = [
    ['no HTTP', ['NONSENSE\r\n\r\n'], 400, 'invalid_http'],
    ['no Host', ['GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n'], 400, 'invalid_http'],
    ['large headers', [head('GET', '/healthz', `x-large: ${'x'.repeat(20_000)}`)], 431, 'headers_too_large'],
    ['an expectation', [head('GET', '/healthz', 'expect: a miracle')], 417, 'expectation_failed'],
    ['a bad path', [head('GET', '/v1/agents/%zz')], 400, 'invalid_request'],
    ['a bad chunk', [head('PUT', '/v1/agents/x', 'transfer-encoding: chunked'), 'ZZ\r\n'], 400, 'invalid_http'],
    ['bad gzip', [head('PUT', '/v1/agents/x', 'content-encoding: gzip', length), garbage], 400, 'invalid_request'],
    ['bad brotli', [head('PUT', '/v1/agents/x', 'content-encoding: br', length), garbage], 400, 'invalid_request'],
    ['unknown', [head('PUT', '/v1/agents/x', 'content-encoding: lzw', length), garbage], 415, 'unsupported_media_type'],
  ];
  for (const [name, bytes, status, code] of cases) {
    const answer = await exchange(ann.url, ...bytes);
    expect([answer.status, answer.body?.error.code], name).toEqual([status, code]);
    expect(answer.headers.get('content-type'), name).toMatch(/^application\/json/);
    expect(answer.headers.get('x-request-id'), name).toMatch(/^req_/);
    expect(answer.body.error.message.length, name).toBeGreaterThan(5);
  }
});

test('a body may be nested 100 levels deep, and no deeper', async () => {
  const agent = (schema: string) =>
    `{"model": {"name": "m"}, "client_tools": [{"name": "t", "input_schema": {"x": ${schema}}}]}`;
  expect((await ann.send('PUT', '/v1/agents/deep', agent(nested(96)))).status).toBe(200);
  for (const body of [agent(nested(97)), nested(101), nested(100_000), '['.repeat(1_000_000)]) {
    const answer = await ann.send('PUT', '/v1/agents/deep', body);
    expect([answer.status, answer.body.error.code]).toEqual([400, 'invalid_json']);
    expect(answer.body.error.message).toMatch(/100 levels/);
  }
});

test('a body with a million errors is rejected with a short response', async () => {
  const id = await ann.createSession('helper');
  const path = `/v1/agents/sessions/${id}/turns`;
  const ones = (count: number) => Array.from({ length: count }, () => 1);
  const message = (content: unknown) => ({ type: 'user.message', content });
  const bodies = {
    items: { input: ones(1_000_000) },
    parts: { input: [message(ones(200_000))] },
    'items and parts': { input: ones(1_000).map(() => message(ones(1_000))) },
    'some too many items': { input: ones(1_001) },
    'some too many parts': { input: [message(ones(1_001))] },
    'each item': { input: ones(1_000) },
  };
  for (const [name, body] of Object.entries(bodies)) {
    const { status, body: answer } = await ann.send('POST', path, body);
    expect([status, answer.error.code], name).toEqual([400, 'invalid_request']);
    expect(answer.error.message.length, name).toBeLessThan(1_000);
  }
  const counted = await ann.send('POST', path, bodies['some too many parts']);
  expect(counted.body.error).toMatchObject({ param: 'input.0.content', message: expect.stringContaining('1000') });
  const first = await ann.send('POST', path, bodies['each item']);
  expect(first.body.error.message.split('; ').length).toBe(5);
  expect(await ann.list(path, 25)).toEqual([]);
});

test('where a body is required, an empty one is missing, however it is sent', async () => {
  const id = await ann.createSession('helper');
  const base = `/v1/agents/sessions/${id}`;
  const empty = [
    ['transfer-encoding: chunked', '0\r\n\r\n'],
    ['content-length: 00', ''],
    ['content-length: 0', ''],
    ['x-nothing: at all', ''],
  ] as const;
  const paths = [
    ['POST', '/v1/agents/sessions'],
    ['POST', '/v1/agents/draft-sessions'],
    ['PUT', '/v1/agents/helper'],
    ['POST', `${base}/cancel`],
    ['POST', `${base}/turns`],
  ] as const;
  for (const [header, body] of empty) {
    for (const [method, path] of paths) {
      const answer = await exchange(ann.url, head(method, path, header), body);
      expect([answer.status, answer.body.error?.code], `${path} ${header}`).toEqual([400, 'invalid_request']);
      expect(answer.body.error.message).toMatch(/send a JSON body/);
    }
  }
  // Only a subscription needs none.
  const turnId = await ann.turn(id, 'hi').turnId();
  await ann.subscribe(id, turnId).done;
  for (const init of [{}, { body: '' }, { body: new Blob([]).stream(), duplex: 'half' as const }]) {
    const headers = { authorization: 'Bearer key-of-ann' };
    const response = await fetch(`${ann.url}${base}/turns/${turnId}/subscribe`, { method: 'POST', headers, ...init });
    expect(await response.text()).toContain('turn.done');
  }
});

test('malformed ids are not found, and do no harm', async () => {
  const id = await ann.createSession('helper');
  const base = `/v1/agents/sessions/${id}`;
  const odd = ['%00', 'a%00b', '%F0%9F%98%80', 'a%2Fb', 'x'.repeat(2_000), '%20', 'auto;'];
  for (const text of odd) {
    for (const [path, code] of [
      [`/v1/agents/sessions/${text}`, 'session_not_found'],
      [`/v1/agents/draft-sessions/${text}`, 'session_not_found'],
      [`${base}/turns/${text}`, 'turn_not_found'],
      [`${base}/turns/${text}/events`, 'turn_not_found'],
      [`${base}/files/${text}`, 'file_not_found'],
    ] as const) {
      const answer = await ann.send('GET', path);
      expect([answer.status, answer.body.error.code], path).toEqual([404, code]);
    }
    const subscribed = await ann.send('POST', `${base}/turns/${text}/subscribe`, {});
    expect([subscribed.status, subscribed.body.error.code]).toEqual([404, 'turn_not_found']);
  }
  for (const text of ['%00', 'a%0Ab', 'x'.repeat(300)]) {
    expect((await ann.send('GET', `/v1/agents/${text}`)).body.error.code).toBe('agent_not_found');
    const listed = await ann.send('GET', `${base}/events?last_turn_id=${text}`);
    expect([listed.status, listed.body.error.param]).toEqual([400, 'last_turn_id']);
  }
  expect((await ann.send('GET', `${base}/events?last_turn_id=no.id`)).status).toBe(404);
  for (const previous of ['', '\ud800', 'turn_\0', 'x'.repeat(5_000_000), 'a/b', '../x', 'turn_1 ']) {
    const input = [{ type: 'user.message', content: 'hi' }];
    const answer = await ann.send('POST', `${base}/turns`, { input, previous_turn_id: previous });
    expect([answer.status, answer.body.error.code]).toEqual([404, 'turn_not_found']);
    expect(answer.body.error.message.length).toBeLessThan(200);
  }
  expect((await ann.turn(id, 'hi').end()).status).toBe('done');
  expect((await ann.list(`${base}/turns`, 25)).length).toBe(1);
});

test('names and texts have limits', async () => {
  const id = await ann.createSession('helper');
  const model = { name: 'm' };
  const x = (length: number) => 'x'.repeat(length);
  const many = <T>(count: number, item: T): T[] => Array.from({ length: count }, () => item);
  const file = (name: string) => ({
    input: [{ type: 'user.message', content: [{ type: 'file', name, data: 'data:a/b;base64,AAAA' }] }],
  });
  const answerTo = (ids: object, approval: object = { status: 'allow' }) => ({
    input: [{ type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'c', ...ids, approval }],
  });
  const servers = (more: object) => ({ mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'test', ...more }] });
  const turns = `/v1/agents/sessions/${id}/turns`;
  const pending = 'call_not_pending';
  const cases: [string, string, unknown, number, string?][] = [
    ['POST', '/v1/agents/sessions', { agent_name: 'helper', title: x(200) }, 201],
    ['POST', '/v1/agents/sessions', { agent_name: 'helper', title: x(201) }, 400, 'title'],
    ['POST', '/v1/agents/sessions', { agent_name: x(256) }, 404, 'agent_not_found'],
    ['POST', '/v1/agents/sessions', { agent_name: x(257) }, 400, 'agent_name'],
    ['POST', '/v1/agents/sessions', { agent_name: 'a\0b' }, 400, 'agent_name'],
    ['POST', '/v1/agents/draft-sessions', { agent_name: x(257), agent_spec: { model } }, 400, 'agent_name'],
    ['PUT', '/v1/agents/x', { model: { name: x(256) } }, 200],
    ['PUT', '/v1/agents/x', { model: { name: x(257) } }, 400, 'model.name'],
    ['PUT', '/v1/agents/x', { model, instructions: x(1_000_001) }, 400, 'instructions'],
    ['PUT', '/v1/agents/x', { model, messages: many(1_001, { type: 'user.message', content: '' }) }, 400, 'messages'],
    ['PUT', '/v1/agents/x', { model, variables: Object.fromEntries(many(1_001, '').entries()) }, 400, 'variables'],
    ['PUT', '/v1/agents/x', { model, ...servers({ enable_tools: many(1_000, 'a') }) }, 200],
    [
      'PUT',
      '/v1/agents/x',
      { model, ...servers({ enable_tools: many(1_001, 'a') }) },
      400,
      'mcp_servers.0.enable_tools',
    ],
    ['PUT', '/v1/agents/x', { model, ...servers({ disable_tools: [x(257)] }) }, 400, 'mcp_servers.0.disable_tools.0'],
    ['PUT', '/v1/agents/x', { model, mcp_servers: many(51, {}) }, 400, 'mcp_servers'],
    ['PUT', '/v1/agents/x', { model, client_tools: many(129, {}) }, 400, 'client_tools'],
    ['PUT', '/v1/agents/x', { model, skills: many(101, {}) }, 400, 'skills'],
    ['POST', turns, file(''), 400, 'input.0.content.0.name'],
    ['POST', turns, file(x(256)), 400, 'input.0.content.0.name'],
    ['POST', turns, answerTo({ thread_id: x(257) }), 400, 'input.0.thread_id'],
    ['POST', turns, answerTo({ thread_id: '' }), 400, 'input.0.thread_id'],
    ['POST', turns, answerTo({ tool_call_id: 'a\nb' }), 400, 'input.0.tool_call_id'],
    ['POST', turns, answerTo({ tool_call_id: '\udc00' }), 400, 'input.0.tool_call_id'],
    ['POST', turns, answerTo({ tool_call_id: x(256) }), 422, pending],
    ['POST', turns, answerTo({}, { status: 'deny', reason: x(10_000) }), 422, pending],
    ['POST', turns, answerTo({}, { status: 'deny', reason: x(10_001) }), 400, 'input.0.approval.reason'],
  ];
  for (const [method, path, body, status, where] of cases) {
    const answer = await ann.send(method, path, body);
    const { error } = answer.body;
    expect([answer.status, status === 400 ? error?.param : error?.code], JSON.stringify(body).slice(0, 200)).toEqual([
      status,
      where,
    ]);
  }
  expect((await ann.turn(id, file(x(255)).input).end()).status).toBe('done');
  const { body } = await ann.send('POST', '/v1/agents/sessions', { agent_name: 'helper', title: 'a\0b\ud800' });
  expect(body.data.title).toBe('ab\ufffd');
});

test('only the path determines the route of a request', async () => {
  expect(await ann.get('/healthz?x=/v1/agents/helper')).toEqual({ status: 'ok' });
  expect((await ann.get('/prefix/v1/agents/helper?x=/v1/agents/nobody')).data.name).toBe('helper');
  expect((await ann.get('/v1/v1/agents/helper')).data.name).toBe('helper');
  // A path of another API that ends like one: the error has the form of that API.
  expect((await ann.send('GET', '/api/v2/agents/nobody/v1/runs')).body).toMatchObject({ detail: expect.anything() });
});

test('a body with few fields may be less large than one with content', async () => {
  const id = await ann.createSession('helper');
  const large = { title: 'x'.repeat(1024 * 1024), agent_name: 'helper' };
  for (const path of ['', `/${id}/cancel`, `/${id}/turns/turn_1/subscribe`]) {
    const { status, body } = await ann.send('POST', `/v1/agents/sessions${path}`, large);
    expect([status, body.error.code], path).toEqual([413, 'body_too_large']);
    expect(body.error.message).toBe('the body is larger than 1 MB');
  }
  const tooLarge = await ann.send('PUT', '/v1/agents/x', { model: { name: 'x'.repeat(30 * 1024 * 1024) } });
  expect([tooLarge.status, tooLarge.body.error.message]).toEqual([413, 'the body is larger than 30 MB']);
});

test('no response can be framed, or run as a page', async () => {
  for (const path of ['/healthz', '/v1/agents/helper', '/v1/nothing', '/docs']) {
    const { headers } = await fetch(ann.url + path, { headers: { authorization: 'Bearer key-of-ann' } });
    const policy = headers.get('content-security-policy');
    expect(policy, path).toMatch(/default-src 'none'/);
    expect(policy, path).toMatch(/frame-ancestors 'none'/);
    expect(headers.get('x-content-type-options'), path).toBe('nosniff');
  }
});

test('a text with NUL is stored, and a name with it is refused', async () => {
  const agent = { name: 'clerk', description: 'a\0b', environments: [], model: 'm' };
  const created = await ann.send('POST', '/api/v2/sessions', { agent, messages: 'a\0b' });
  expect([created.status, created.body.request?.messages[0].message]).toEqual([201, 'a\0b']);
  const session = `/api/v2/sessions/${created.body.id}`;
  const url = 'https://example.com/hook';
  const cases: [string, string, unknown, number, unknown?][] = [
    ['POST', '/api/v2/agents', agent, 201],
    ['POST', '/api/v2/skills', { name: 'refunds', description: 'a\0b', body: 'a\0b' }, 201],
    ['POST', '/api/v2/webhooks', { url, description: 'a\0b', disabled: true }, 201],
    ['POST', `${session}/feedback`, { success: true, message: 'a\0b' }, 204],
    ['POST', `${session}/messages`, { type: 'user_message', message: 'a\0b' }, 202],
    ['POST', '/api/v2/sessions', { agent, group_id: 'a\0b' }, 422, ['body', 'group_id']],
    ['GET', '/api/v2/sessions?group_id=a%00b', undefined, 422, ['query', 'group_id']],
    ['GET', '/api/v2/sessions?schedule_id=a%00b', undefined, 422, ['query', 'schedule_id']],
    ['POST', '/api/v2/webhooks', { url: `${url}\0` }, 422, ['body', 'url']],
    ['POST', '/v1/webhooks', { url: `${url}\0`, events: ['turn.done'] }, 400],
    ['GET', '/v1/agents/mcp/callback?state=a%00b&code=c', undefined, 404],
  ];
  for (const [method, path, body, status, loc] of cases) {
    const answer = await ann.send(method, path, body);
    expect([answer.status, answer.body?.detail?.[0]?.loc], `${method} ${path}`).toEqual([status, loc]);
  }
});
