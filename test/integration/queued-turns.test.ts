import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { CUT_OFF } from '../../src/core/stopped-work.ts';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { folded, type EventReader } from '../support/api-client.ts';
import { held, say, textOf, use } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let operator: TemporalClient;
beforeAll(async () => {
  server = await startTestServer();
  operator = await TemporalClient.connect({
    address: inject('temporalAddress'),
    namespace: inject('temporalNamespace'),
  });
});
afterAll(async () => {
  await operator.close();
  await server.stop();
});

interface TurnState {
  id: string;
  previous_turn_id: string | null;
  state: { status: string; reason?: string; queued?: { position: number } };
}

async function archived(turnId: string): Promise<number | undefined> {
  const { rows } = server.database;
  const row = await rows.selectFrom('turns').select('archived').where('id', '=', turnId).executeTakeFirst();
  return row?.archived;
}

const queue = (chat: Chat, text: string): EventReader => chat.turn(text, { on_running: 'queue' });

async function turnOf(chat: Chat, turnId: string): Promise<TurnState> {
  return (await server.api.get<{ data: TurnState }>(`${chat.path}/turns/${turnId}`)).data;
}

/** The ids of the turns in the queue of a session, with their positions. */
async function queueOf(chat: Chat): Promise<[string, number | undefined][]> {
  const turns = await server.api.list<TurnState>(`${chat.path}/queue`);
  return turns.map(({ id, state }) => [id, state.queued?.position]);
}

/** The text of the last message of each request to the model. */
const asked = (chat: Chat) => chat.requests().map(({ messages }) => textOf(messages.at(-1)));

const busy = () =>
  held(
    (call) => call.text('busy'),
    (call) => call.text('.').finish(),
  );

test('queued turns begin in their order, each after the end of the one before; one that is cancelled is left out', async () => {
  const model = busy();
  const chat = await server.chat({ scripts: [model.script, say('b'), say('d')] });
  const first = chat.turn('one');
  await first.says('busy');
  const readers: EventReader[] = [];
  for (const text of ['two', 'three', 'four']) {
    const reader = queue(chat, text);
    readers.push(reader);
    const created = await reader.type('turn.created');
    expect(created.state).toEqual({ status: 'running', queued: { position: readers.length } });
    expect([created.sequence_number, created.previous_turn_id]).toEqual([1, null]);
  }
  const [second, third, fourth] = readers as [EventReader, EventReader, EventReader];
  const ids = await Promise.all([first, ...readers].map((reader) => reader.turnId()));
  const [firstId = '', secondId = '', thirdId = '', fourthId = ''] = ids;
  expect((await turnOf(chat, fourthId)).state).toEqual({ status: 'running', queued: { position: 3 } });
  expect(await queueOf(chat)).toEqual([
    [secondId, 1],
    [thirdId, 2],
    [fourthId, 3],
  ]);

  for (let times = 0; times < 2; times++) {
    const cancelled = await server.api.send('POST', `${chat.path}/turns/${thirdId}/cancel`, {});
    expect([cancelled.status, cancelled.body]).toEqual([200, {}]);
    expect(await third.end()).toMatchObject({ status: 'cancelled', reason: 'client-cancelled' });
  }
  // Its position is that of its creation, in every stream.
  const stream = await third.done;
  expect(stream.map((event) => [event.sequence_number, event.type])).toEqual([
    [1, 'turn.created'],
    [2_000_000, 'turn.done'],
  ]);
  expect(await server.api.subscribe(chat.sessionId, thirdId).done).toEqual(stream);
  expect(await server.api.subscribe(chat.sessionId, thirdId, 1).done).toEqual(stream.slice(1));
  expect(first.frames.at(-1)?.type).not.toBe('turn.done');
  expect((await turnOf(chat, thirdId)).state).toMatchObject({ status: 'cancelled' });
  await expect.poll(async () => (await turnOf(chat, fourthId)).state.queued).toEqual({ position: 2 });
  expect(await queueOf(chat)).toEqual([
    [secondId, 1],
    [fourthId, 2],
  ]);
  expect((await server.api.list<TurnState>(`${chat.path}/turns`, 25)).map(({ id }) => id)).toEqual([firstId]);

  model.release();
  expect((await fourth.end()).status).toBe('done');
  expect(asked(chat)).toEqual(['one', 'two', 'four']);
  expect(chat.requests().at(-1)?.messages.map(textOf)).toEqual(['one', 'busy.', 'two', 'b', 'four']);
  // The event that the turn waits is replaced by the first one of its log.
  const [created] = folded(await second.done);
  expect(created).toMatchObject({ type: 'turn.created', previous_turn_id: firstId, state: { status: 'running' } });
  expect(created).not.toHaveProperty('state.queued');
  expect(folded(await server.api.subscribe(chat.sessionId, secondId).done)).toEqual(folded(await second.done));
  const listed = await server.api.list<TurnState>(`${chat.path}/turns`, 25);
  expect(listed.map(({ id }) => id)).toEqual([fourthId, secondId, firstId]);
  expect(await queueOf(chat)).toEqual([]);
});

test('cancelling the session ends its queue; the logs of turns that never began are archived, and can be read', async () => {
  const model = busy();
  const chat = await server.chat({ scripts: [model.script, say('later')] });
  const first = chat.turn('one');
  await first.says('busy');
  const second = queue(chat, 'two');
  const secondId = await second.turnId();
  const thirdId = await queue(chat, 'three').turnId();
  // The session has not asked for this end: it learns it as that of a turn whose worker was lost in between.
  await operator.client.workflow.getHandle(turnWorkflowId(thirdId)).terminate();
  await expect.poll(() => archived(thirdId)).toBe(1);
  expect((await server.api.send('POST', `${chat.path}/cancel`, {})).status).toBe(200);
  expect(await first.end()).toMatchObject({ status: 'cancelled' });
  expect(folded(await second.done)).toMatchObject([{ type: 'turn.created' }, { type: 'turn.done' }]);
  await expect.poll(() => archived(secondId)).toBe(1);
  expect(folded(await server.api.subscribe(chat.sessionId, secondId).done)).toEqual(folded(await second.done));
  const fork = await server.api.send('POST', `${chat.path}/turns`, {
    input: [{ type: 'user.message', content: 'x' }],
    previous_turn_id: secondId,
  });
  expect([fork.status, fork.body.error.code]).toEqual([404, 'turn_not_found']);
  await chat.turn('three').done;
  expect(chat.requests().at(-1)?.messages.map(textOf)).toEqual(['one', 'busy', CUT_OFF, 'three']);
  model.release();
});

test('the queue waits while the last turn needs an answer, which goes ahead of it; a fork is not queued', async () => {
  const question = use({ name: 'ask_user_question', args: { question: '?' }, id: 'q1' });
  const model = held(
    (call) => call.text('busy'),
    (call) => void question(call),
  );
  const chat = await server.chat({ scripts: [model.script, say('thanks'), say('done')] });
  const first = chat.turn('one');
  await first.says('busy');
  const second = queue(chat, 'two');
  const secondId = await second.turnId();
  const firstId = await first.turnId();
  const fork = await server.api.send('POST', `${chat.path}/turns`, {
    input: [{ type: 'user.message', content: 'x' }],
    previous_turn_id: secondId.replace(/.$/, (last) => (last === '0' ? '1' : '0')),
    on_running: 'queue',
  });
  expect([fork.status, fork.body.error.code]).toEqual([409, 'turn_running']);
  model.release();
  expect(await first.end()).toMatchObject({ status: 'done', required_actions: [{}] });
  const third = chat.turn('three', { on_running: 'queue', previous_turn_id: firstId });
  expect((await third.type('turn.created')).state).toMatchObject({ queued: { position: 2 } });
  const answer = chat.turn([{ type: 'user.tool_response', thread_id: 'main', tool_call_id: 'q1', content: 'blue' }]);
  expect((await answer.end()).status).toBe('done');
  expect((await third.end()).status).toBe('done');
  expect((await turnOf(chat, secondId)).previous_turn_id).toBe(await answer.turnId());
  expect((await turnOf(chat, await third.turnId())).previous_turn_id).toBe(secondId);
});

test('a turn that cancels the running one goes ahead of the queue, which outlives its session workflow', async () => {
  const [model, next] = [busy(), busy()];
  const chat = await server.chat({ scripts: [model.script, next.script, say('c')] });
  const first = chat.turn('one');
  await first.says('busy');
  const queued = queue(chat, 'queued');
  const queuedId = await queued.turnId();
  const root = chat.turn('root', { on_running: 'queue', previous_turn_id: 'none' });
  await root.turnId();
  const ahead = chat.turn('ahead');
  expect(await first.end()).toMatchObject({ status: 'cancelled', reason: 'cancelled-for-next-turn' });
  await ahead.says('busy');
  await operator.client.workflow.getHandle(sessionWorkflowId(chat.sessionId)).terminate();
  // The next command starts the session again.
  const last = queue(chat, 'last');
  expect((await last.type('turn.created')).state).toMatchObject({ queued: { position: 3 } });
  next.release();
  expect((await last.end()).status).toBe('done');
  expect(asked(chat)).toEqual(['one', 'ahead', 'queued', 'root', 'last']);
  expect((await turnOf(chat, queuedId)).previous_turn_id).toBe(await ahead.turnId());
  expect((await turnOf(chat, await root.turnId())).previous_turn_id).toBe(null);
  expect(chat.requests().at(-1)?.messages.map(textOf).slice(0, 1)).toEqual(['root']);
  model.release();
});
