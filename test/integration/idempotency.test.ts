import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { held, say } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

const body = { input: [{ type: 'user.message', content: 'hi' }] };

test('a session is created once for a key', async () => {
  await server.api.putAgent('a', { model: { name: 'm' } });
  const create = (agent: string, key: string) =>
    server.api.send('POST', '/v1/agents/sessions', { agent_name: 'a', title: agent }, { 'idempotency-key': key });
  const [first, second] = [await create('x', 'k1'), await create('x', 'k1')];
  expect([first.status, second.status]).toEqual([201, 201]);
  expect(second.body.data.id).toBe(first.body.data.id);
  const reused = await create('y', 'k1');
  expect([reused.status, reused.body.error.code]).toEqual([422, 'idempotency_key_reused']);
  expect((await create('x', 'k2')).body.data.id).not.toBe(first.body.data.id);
  expect((await create('x', 'no spaces allowed')).status).toBe(400);
});

test('a turn with a key is started once: again, at once, or later, it is the same stream', async () => {
  const chat = await server.chat({ scripts: [say('only once')] });
  const key = { 'idempotency-key': 'turn-1' };
  const readers = [1, 2, 3].map(() => chat.turn('hi', {}, key));
  const streams = await Promise.all(readers.map((reader) => reader.done));
  const later = await chat.turn('hi', {}, key).done;
  for (const frames of streams) expect(folded(frames)).toEqual(folded(later));
  expect(chat.requests().length).toBe(1);
  const other = await server.api.send('POST', `${chat.path}/turns`, { ...body, stream: false }, key);
  expect([other.status, other.body.error.code]).toEqual([422, 'idempotency_key_reused']);
  const json = await server.api.send(
    'POST',
    `${chat.path}/turns`,
    { ...body, stream: false },
    { 'idempotency-key': 'turn-2' },
  );
  const again = await server.api.send(
    'POST',
    `${chat.path}/turns`,
    { ...body, stream: false },
    { 'idempotency-key': 'turn-2' },
  );
  expect(again.body.data.id).toBe(json.body.data.id);
});

test('a key whose request was refused can be used again', async () => {
  const chat = await server.chat();
  const key = { 'idempotency-key': 'again' };
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'x', approval: { status: 'allow' } };
  const refused = () => server.api.send('POST', `${chat.path}/turns`, { input: [approval] }, key);
  expect((await refused()).status).toBe(422);
  expect((await refused()).status).toBe(422);
  expect((await chat.turn('hi', {}, key).end()).status).toBe('done');
});

test('without a key the same body twice is two turns', async () => {
  const chat = await server.chat();
  await chat.turn('hi').done;
  await chat.turn('hi').done;
  expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(2);
});

test('a request whose answer found nobody is not carried out twice', async () => {
  const model = held(
    () => undefined,
    (call) => call.text('once').finish(),
  );
  const chat = await server.chat({ scripts: [model.script] });
  // Sends the request and hangs up before any answer.
  const { hostname, port } = new URL(server.api.url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  const text = JSON.stringify(body);
  socket.write(
    `POST ${chat.path}/turns HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
  );
  await new Promise((resolve) => setImmediate(resolve));
  socket.destroy();
  await model.reached;
  const reader = server.api.stream(`${chat.path}/turns`, body);
  await reader.turnId();
  model.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'once' } });
  expect(chat.requests().length).toBe(1);
  expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(1);
});

test('many turns asked for at once on one session follow one another', async () => {
  const chat = await server.chat();
  const readers = Array.from({ length: 12 }, (_, i) => chat.turn(`number ${i}`));
  const ends = await Promise.all(readers.map((reader) => reader.end()));
  const turns = await server.api.list<{ id: string; previous_turn_id: string | null }>(`${chat.path}/turns`, 25);
  expect(turns.length).toBe(12);
  for (const [i, turn] of turns.entries()) expect(turn.previous_turn_id).toBe(turns[i + 1]?.id ?? null);
  for (const end of ends) expect(['done', 'cancelled']).toContain(end.status);
  expect(ends.filter(({ status }) => status === 'done').length).toBeGreaterThanOrEqual(1);
});
