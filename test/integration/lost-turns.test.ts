import { Client, Connection } from '@temporalio/client';
import { defaultDataConverter } from '@temporalio/common';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { sessionWorkflowId } from '../../src/core/temporal-names.ts';
import { held, say } from '../support/scripted-model.ts';
import { TurnHistory } from '../../src/temporal/history.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** After a disaster: a catalog that has turns which were running in a Temporal that no longer exists. */

let server: TestServer;
let connection: Connection;
beforeAll(async () => {
  server = await startTestServer();
  connection = await Connection.connect({ address: inject('temporalAddress') });
});
afterAll(async () => {
  await connection.close();
  await server.stop();
});

test('a session whose last turns are lost continues from the last one that exists', async () => {
  const chat = await server.chat({ scripts: [say('one'), say('two')] });
  const first = chat.turn('hi');
  await first.done;
  const firstId = await first.turnId();
  const lost = [newId('turn'), newId('turn')];
  for (const [i, id] of lost.entries()) {
    const created = new Date().toISOString();
    const row = { id, session_id: chat.sessionId, previous_turn_id: firstId, sequence: i + 2, created_at: created };
    await server.database.rows.insertInto('turns').values(row).execute();
  }
  // The memory of the session is lost with the turns.
  const client = new Client({ connection, namespace: inject('temporalNamespace') });
  await client.workflow.getHandle(sessionWorkflowId(chat.sessionId)).terminate();

  const listed = async () => (await server.api.list<{ id: string }>(`${chat.path}/turns`, 25)).map(({ id }) => id);
  expect(await listed()).toEqual([firstId]);
  expect((await server.api.list(`${chat.path}/events`)).length).toBeGreaterThan(2);
  const second = chat.turn('are you there?');
  expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'two' } });
  expect((await second.type('turn.created')).previous_turn_id).toBe(firstId);
  expect(await listed()).toEqual([await second.turnId(), firstId]);
  // The model has received the earlier conversation.
  expect(chat.requests()[1]?.messages.map(({ content }) => content)).toEqual(['hi', 'one', 'are you there?']);
  expect((await server.api.send('GET', `${chat.path}/turns/${lost[0]}`)).status).toBe(404);
});

test('a lost turn is deleted when it can no longer run, unless the conversation goes through it', async () => {
  const chat = await server.chat({ scripts: [say('one'), say('two')] });
  const { rows } = server.database;
  const turn = (id: string) => rows.selectFrom('turns').selectAll().where('id', '=', id).executeTakeFirst();
  const before = new Date(Date.now() - 3 * 86_400_000).toISOString();
  const [through, followed, lost, young] = [newId('turn'), newId('turn'), newId('turn'), newId('turn')];
  const lostTurn = (id: string, previous: string | null, sequence: number, at: string) => {
    const row = { id, session_id: chat.sessionId, previous_turn_id: previous, sequence, created_at: at };
    return rows.insertInto('turns').values(row).execute();
  };
  await lostTurn(through, null, 11, before);
  await lostTurn(followed, through, 12, before);
  await lostTurn(lost, null, 13, before);
  await lostTurn(young, null, 14, new Date().toISOString());
  await rows.updateTable('turns').set({ archived: 1 }).where('id', '=', followed).execute();
  const running = chat.turn('hi');
  await running.done;
  const id = await running.turnId();
  // Temporal has it, whatever its row contains.
  await rows.updateTable('turns').set({ created_at: before }).where('id', '=', id).execute();
  await server.restart();
  await expect.poll(() => turn(lost)).toBe(undefined);
  for (const kept of [through, young, id]) expect(await turn(kept), kept).toBeDefined();
});

test('Temporal lists a turn under its session from the acceptance of the turn until its end', async () => {
  const hold = held(
    (call) => call.text('one'),
    (call) => call.finish(),
  );
  const chat = await server.chat({ scripts: [hold.script] });
  const turn = chat.turn('hi');
  const id = await turn.turnId();
  const history = new TurnHistory({
    connection,
    namespace: inject('temporalNamespace'),
    converter: { ...defaultDataConverter, payloadCodecs: [] },
  });
  expect(await history.isStarting(id, chat.sessionId)).toBe(true);
  expect(await history.isStarting(newId('turn'), chat.sessionId)).toBe(false);
  expect(await history.isStarting(id, newId('ses'))).toBe(false);
  hold.release();
  await turn.done;
  await expect.poll(() => history.isStarting(id, chat.sessionId)).toBe(false);
});
