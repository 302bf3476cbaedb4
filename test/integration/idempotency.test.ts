import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { SessionCommands } from '../../src/engine/session-commands.ts';
import { ApiError } from '../../src/api/http/errors.ts';
import { TurnLogReader } from '../../src/engine/turn-log-reader.ts';
import { folded } from '../support/api-client.ts';
import { hangUp } from '../support/raw-http.ts';
import { held, say } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterEach(() => void vi.restoreAllMocks());
afterAll(() => server.stop());

const body = { input: [{ type: 'user.message', content: 'hi' }] };

test('a session is created once per key', async () => {
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

test('a turn is started once per key: a repetition, concurrent or later, gets the same stream', async () => {
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

test('a key whose request was rejected can be used again', async () => {
  const chat = await server.chat();
  const key = { 'idempotency-key': 'again' };
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'x', approval: { status: 'allow' } };
  const refused = () => server.api.send('POST', `${chat.path}/turns`, { input: [approval] }, key);
  expect((await refused()).status).toBe(422);
  expect((await refused()).status).toBe(422);
  const parts = Array.from({ length: 1_000 }, () => ({ type: 'text', text: 'x'.repeat(500) }));
  const large = { input: [{ type: 'user.message', content: parts }] };
  const tooLarge = await server.api.send('POST', `${chat.path}/turns`, large, key);
  expect([tooLarge.status, tooLarge.body.error.code]).toEqual([422, 'content_too_large']);
  const turns = server.database.rows.selectFrom('turns').select('id').where('session_id', '=', chat.sessionId);
  expect(await turns.execute()).toEqual([]);
  expect((await chat.turn('hi', {}, key).end()).status).toBe('done');
});

test('a request that was started with a key gets its response, whatever has changed since', async () => {
  const chat = await server.chat({ scripts: [say('before it closed')] });
  const key = { 'idempotency-key': 'closed' };
  const first = await chat.turn('hi', {}, key).done;
  await server.api.send('POST', `${chat.path}/cancel`, { close: true });
  expect(folded(await chat.turn('hi', {}, key).done)).toEqual(folded(first));
  const other = await server.api.send('POST', `${chat.path}/turns`, body, { 'idempotency-key': 'closed-too' });
  expect([other.status, other.body.error.code]).toEqual([409, 'session_closed']);

  const create = () =>
    server.api.send('POST', '/v1/agents/sessions', { agent_name: 'gone' }, { 'idempotency-key': 'gone' });
  expect((await create()).status).toBe(404);
  await server.api.putAgent('gone', { model: { name: 'm' } });
  const created = await create();
  expect(created.status).toBe(201);
  await server.database.rows.deleteFrom('agents').where('name', '=', 'gone').execute();
  expect((await create()).body).toEqual(created.body);
});

test('a key stands for the whole request, and belongs to one session', async () => {
  await server.api.putAgent('a', { model: { name: 'm' } });
  const create = (metadata: string) =>
    server.api.send(
      'POST',
      '/v1/agents/sessions',
      { agent_name: 'a' },
      { 'idempotency-key': 'metadata', 'x-tfy-metadata': metadata },
    );
  expect((await create('{"n":1}')).status).toBe(201);
  const other = await create('{"n":2}');
  expect([other.status, other.body.error.code]).toEqual([422, 'idempotency_key_reused']);
  const [one, two] = [await server.chat(), await server.chat()];
  const key = { 'idempotency-key': 'both' };
  expect(await one.turn('hi', {}, key).turnId()).not.toBe(await two.turn('hi', {}, key).turnId());
});

test('a turn that was started is answered with 200, even if nothing can be read at that time', async () => {
  const chat = await server.chat({ scripts: [say('fine')] });
  // As if Temporal became unavailable in the moment after.
  vi.spyOn(TurnLogReader.prototype, 'firstAndLast').mockRejectedValue(new Error('away'));
  const input = [{ type: 'user.message', content: 'a long story '.repeat(20_000) }];
  const { status, body: answer } = await server.api.send('POST', `${chat.path}/turns`, { input, stream: false });
  expect(status).toBe(200);
  vi.restoreAllMocks();
  await server.api.subscribe(chat.sessionId, answer.data.id).done;
  const { data: turn } = await server.api.get(`${chat.path}/turns/${answer.data.id}`);
  expect(answer.data).toEqual({ ...turn, state: { status: 'running' } });
  expect(turn.state.status).toBe('done');
});

test('without a key the same body twice is two turns', async () => {
  const chat = await server.chat();
  await chat.turn('hi').done;
  await chat.turn('hi').done;
  expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(2);
});

test.each([true, false])(
  'a request whose response was not delivered is not executed twice (stream: %s)',
  async (stream) => {
    const model = held(
      () => undefined,
      (call) => call.text('once').finish(),
    );
    const chat = await server.chat({ scripts: [model.script] });
    const asked = { ...body, stream };
    await hangUp(server.api.url, `${chat.path}/turns`, asked);
    await model.reached;
    if (stream) {
      await server.api.stream(`${chat.path}/turns`, asked).turnId();
    } else {
      const again = await server.api.send('POST', `${chat.path}/turns`, asked);
      expect([again.status, again.body.data.state.status]).toEqual([200, 'running']);
    }
    model.release();
    const [turn, ...more] = await server.api.list<{ id: string }>(`${chat.path}/turns`, 25);
    expect(more).toEqual([]);
    const end = await server.api.subscribe(chat.sessionId, turn?.id ?? '').end();
    expect(end).toMatchObject({ status: 'done', output: { content: 'once' } });
    expect(chat.requests().length).toBe(1);
    // This response was delivered: the same body again is another turn.
    await server.api.send('POST', `${chat.path}/turns`, { ...asked, stream: false });
    expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(2);
  },
);

test('concurrent turns of one session are executed one after the other', async () => {
  const chat = await server.chat();
  const readers = Array.from({ length: 12 }, (_, i) => chat.turn(`number ${i}`));
  const ends = await Promise.all(readers.map((reader) => reader.end()));
  const turns = await server.api.list<{ id: string; previous_turn_id: string | null }>(`${chat.path}/turns`, 25);
  expect(turns.length).toBe(12);
  for (const [i, turn] of turns.entries()) expect(turn.previous_turn_id).toBe(turns[i + 1]?.id ?? null);
  for (const end of ends) expect(['done', 'cancelled']).toContain(end.status);
  expect(ends.filter(({ status }) => status === 'done').length).toBeGreaterThanOrEqual(1);
});

test('a repeated request sends the same command: Temporal may keep the first and execute the second', async () => {
  const chat = await server.chat();
  const send = vi.spyOn(SessionCommands.prototype, 'createTurn');
  send.mockRejectedValueOnce(new ApiError('unavailable', 'away', { retryAfter: 1 }));
  const key = { 'idempotency-key': 'asked-twice' };
  expect((await server.api.send('POST', `${chat.path}/turns`, { ...body, stream: false }, key)).status).toBe(503);
  expect((await server.api.send('POST', `${chat.path}/turns`, { ...body, stream: false }, key)).status).toBe(200);
  const [first, second] = send.mock.calls;
  expect(second).toEqual(first);
});
