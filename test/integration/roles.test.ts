import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient, folded } from '../support/api-client.ts';
import { Exposition } from '../support/prometheus.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let clients: Record<'admin' | 'approver' | 'ann' | 'bob', ApiClient>;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,boss:approver=key-of-boss,ann=key-of-ann,bob:user=key-of-bob' },
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
  const as = (key: string) => new ApiClient(server.server.url, key);
  clients = { admin: as('key-of-root'), approver: as('key-of-boss'), ann: as('key-of-ann'), bob: as('key-of-bob') };
  await clients.admin.putAgent('writer', { model: { name: 'writer' }, ...onTestServer });
});
afterAll(() => server.stop());

const message = { input: [{ type: 'user.message', content: 'hi' }] };
const decision = (status: string, id = 'w1') => ({
  input: [{ type: 'user.tool_approval', thread_id: 'main', tool_call_id: id, approval: { status } }],
});

/** The responses for the admin, the approver and another user. */
async function answers(method: string, path: string, body?: unknown): Promise<number[]> {
  const sent = ['key-of-root', 'key-of-boss', 'key-of-bob'].map(async (key) => {
    const response = await fetch(server.server.url + path, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    await response.text();
    return response.status;
  });
  return Promise.all(sent);
}

test('admins and approvers read sessions of others, which users cannot find', async () => {
  const { ann } = clients;
  server.model.script('writer', say('x'.repeat(400_000)));
  const id = await ann.createSession('writer');
  const reader = ann.turn(id, [
    {
      type: 'user.message',
      content: [{ type: 'file', name: 'a.bin', data: `data:application/x-bin;base64,${'AAAA'.repeat(30_000)}` }],
    },
  ]);
  const events = folded(await reader.done);
  const base = `/v1/agents/sessions/${id}`;
  const turn = `${base}/turns/${await reader.turnId()}`;
  const file = /"(\/v1\/agents\/sessions\/[^"]*\/files\/[^"]*)"/.exec(JSON.stringify(events))?.[1] ?? '';
  for (const path of [base, `${base}/turns`, turn, `${turn}/events`, `${base}/events`, file]) {
    expect(await answers('GET', path), path).toEqual([200, 200, 404]);
  }
  expect(await answers('POST', `${turn}/subscribe`, {})).toEqual([200, 200, 404]);
  const spec = { model: { name: 'm' } };
  const draft = (await ann.send('POST', '/v1/agents/draft-sessions', { agent_spec: spec })).body.data.id;
  expect(await answers('GET', `/v1/agents/draft-sessions/${draft}`)).toEqual([200, 200, 404]);
  // The denied requests.
  expect(await answers('PATCH', `/v1/agents/draft-sessions/${draft}`, {})).toEqual([403, 403, 404]);
  for (const input of [message, { input: [] }, {}]) {
    expect(await answers('POST', `${base}/turns`, input)).toEqual([403, 403, 404]);
  }
  expect(await ann.list(`${base}/turns`, 25)).toHaveLength(1);
  expect(await answers('POST', `${base}/cancel`, {})).toEqual([200, 403, 404]);
  const { body } = await clients.admin.send('POST', `${base}/turns`, message);
  expect(body.error).toMatchObject({
    code: 'forbidden',
    type: 'permission_error',
    message: expect.stringMatching(/role admin.*send messages.*you may: read, cancel, delete/),
  });
});

test('admins and approvers read runs of others, whose client tools they do not answer', async () => {
  server.model.script('caller', use({ name: 'lookup', id: 'l1' }));
  const { status, body } = await clients.ann.send('POST', '/v1/runs', {
    agent: { model: 'caller', tools: [{ name: 'lookup', description: '', parameters: {} }] },
    input: [{ type: 'message', role: 'user', content: 'hi' }],
  });
  expect([status, body.status]).toEqual([200, 'requires_action']);
  const path = `/v1/runs/${body.id}`;
  expect(await answers('GET', path)).toEqual([200, 200, 404]);
  const result = { tool_results: [{ tool_call_id: 'l1', content: 'found' }] };
  expect(await answers('POST', `${path}/resume`, result)).toEqual([403, 403, 404]);
  // Before the result, which may have megabytes, is stored with the run.
  const refused = await clients.approver.send('POST', `${path}/resume`, result);
  expect(refused.body.error).toMatchObject({ code: 'forbidden', message: expect.stringContaining('send messages') });
  expect(await answers('POST', `${path}/cancel`, {})).toEqual([200, 403, 404]);
  expect((await clients.approver.send('DELETE', path)).status).toBe(403);
});

test('a conversation is sent to no model for a user who may not read it', async () => {
  const { admin, ann, bob } = clients;
  await admin.putAgent('confidant', { model: { name: 'confidant' } });
  const hers = ann.turn(await ann.createSession('confidant'), 'my secret is 4711');
  await hers.done;
  const his = await bob.createSession('confidant');
  const speculativeCalls = async () => {
    const metrics = await fetch(`${server.server.url}/metrics`, { headers: { authorization: 'Bearer key-of-root' } });
    const { samples } = new Exposition(await metrics.text());
    return samples.filter(({ name }) => name === 'everturn_speculative_calls_total').map(({ value }) => value);
  };
  const before = await speculativeCalls();
  const refused = await bob.send('POST', `/v1/agents/sessions/${his}/turns`, {
    input: [{ type: 'user.message', content: 'what is the secret?' }],
    previous_turn_id: await hers.turnId(),
  });
  expect([refused.status, refused.body.error.code]).toEqual([404, 'turn_not_found']);
  expect(server.model.requestsTo('confidant')).toHaveLength(1);
  expect(await speculativeCalls()).toEqual(before);
  // A fork of the caller's own gets its speculative call.
  const first = bob.turn(his, 'one');
  await first.done;
  await bob.turn(his, 'two').done;
  await bob.turn(his, 'three', { previous_turn_id: await first.turnId() }).done;
  expect(Math.max(...(await speculativeCalls()).map((count, i) => count - (before[i] ?? 0)))).toBe(3);
});

test('an approver decides, and the turn says who it was', async () => {
  const { ann, approver } = clients;
  server.model.script('writer', use({ name: 'write', id: 'w1' }), say('Done.'));
  const id = await ann.createSession('writer');
  await ann.turn(id, 'write').done;
  const path = `/v1/agents/sessions/${id}/turns`;
  const mixed = { input: [...decision('allow').input, ...message.input] };
  const response = { input: [{ type: 'user.tool_response', thread_id: 'main', tool_call_id: 'w1', content: 'no' }] };
  expect(await answers('POST', path, mixed)).toEqual([403, 403, 404]);
  expect(await answers('POST', path, response)).toEqual([403, 403, 404]);
  expect((await clients.admin.send('POST', path, decision('allow'))).status).toBe(403);
  expect((await clients.bob.send('POST', path, decision('allow'))).status).toBe(404);
  const decided = approver.turn(id, decision('allow').input);
  expect(await decided.end()).toMatchObject({ status: 'done', output: { content: 'Done.' } });
  const boss = { subject_id: 'boss', subject_type: 'user', subject_slug: 'boss' };
  expect(await decided.type('turn.created')).toMatchObject({ created_by: boss });
  const { data } = await ann.get(`${path}/${await decided.turnId()}`);
  expect(data).toMatchObject({ created_by_subject: boss, input: [{ type: 'user.tool_approval' }] });
  // The session still belongs to its owner, who continues it.
  expect((await ann.turn(id, 'thanks').end()).status).toBe('done');
});

test('a decision on an earlier turn ends the running one only for a caller who may cancel it', async () => {
  const { admin, ann, approver } = clients;
  await admin.putAgent('busy', { model: { name: 'busy' }, ...onTestServer });
  const gate = held(
    (call) => call.text('I am '),
    (call) => call.text('done.').finish(),
  );
  server.model.script('busy', use({ name: 'write', id: 'w1' }), gate.script, say('Written.'));
  const id = await ann.createSession('busy');
  const paused = ann.turn(id, 'write');
  await paused.done;
  const running = ann.turn(id, 'something else', { previous_turn_id: 'none' });
  await running.says('I am ');
  const path = `/v1/agents/sessions/${id}/turns`;
  const late = { ...decision('allow'), previous_turn_id: await paused.turnId() };
  const { status, body } = await approver.send('POST', path, { ...late, stream: false });
  expect([status, body.error?.code]).toEqual([403, 'forbidden']);
  expect(body.error.message).toContain('would cancel the running turn');
  gate.release();
  expect(await running.end()).toMatchObject({ status: 'done', output: { content: 'I am done.' } });
  // Nothing runs now that it would end.
  const decided = approver.turn(id, late.input, { previous_turn_id: late.previous_turn_id });
  expect(await decided.end()).toMatchObject({ status: 'done', output: { content: 'Written.' } });
});

test('who may create sessions, and who may write agents', async () => {
  const spec = { model: { name: 'm' } };
  const session = { agent_name: 'writer' };
  const status = async (client: ApiClient, method: string, path: string, body: unknown) =>
    (await client.send(method, `/v1/agents/${path}`, body)).status;
  const { admin, approver, ann } = clients;
  for (const [client, create, write] of [
    [admin, 201, 200],
    [ann, 201, 403],
    [approver, 403, 403],
  ] as const) {
    expect(await status(client, 'POST', 'sessions', session)).toBe(create);
    expect(await status(client, 'POST', 'draft-sessions', { agent_spec: spec })).toBe(create === 201 ? 200 : 403);
    expect(await status(client, 'PUT', 'mine', spec)).toBe(write);
    // Before the body is read.
    expect(await status(client, 'PUT', 'mine', '{')).toBe(write === 200 ? 400 : 403);
  }
  expect((await ann.get('/v1/agents/mine')).data.version).toBe(1);
});

test('who may delete and list sessions of others', async () => {
  const { admin, approver, ann, bob } = clients;
  const id = await ann.createSession('writer');
  const listed = async (client: ApiClient) =>
    (await client.list<{ id: string }>('/v1/agents/sessions')).some((session) => session.id === id);
  expect([await listed(ann), await listed(admin), await listed(approver), await listed(bob)]).toEqual([
    true,
    true,
    true,
    false,
  ]);
  const path = `/v1/agents/sessions/${id}`;
  expect((await bob.send('DELETE', path)).status).toBe(404);
  expect((await approver.send('DELETE', path)).status).toBe(403);
  expect((await ann.send('GET', path)).status).toBe(200);
  expect((await admin.send('DELETE', path)).status).toBe(204);
  expect((await ann.send('GET', path)).status).toBe(404);
  expect((await ann.send('DELETE', '/v1/agents/writer')).status).toBe(403);
});
