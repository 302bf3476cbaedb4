import { existsSync } from 'node:fs';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { SessionCommands } from '../../src/engine/session-commands.ts';
import { newId } from '../../src/engine/new-id.ts';
import { deleteSessionWorkflowId, sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { createTurnCommand } from '../support/create-turn-command.ts';
import { eventually } from '../support/eventually.ts';
import { DELETES_RUNS_AT_ONCE, startOwnTemporal, type OwnTemporal } from '../support/own-temporal.ts';
import { TestMcpServer } from '../support/mcp-server.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

// A removal waits 5 s for readers: those of all tests wait together.
vi.setConfig({ maxConcurrency: 10 });

let server: TestServer;
let own: OwnTemporal;
let temporal: TemporalClient;
const taskQueue = newId('req');
/** Signals of the running calls of `slow`. */
const running: AbortSignal[] = [];
beforeAll(async () => {
  own = await startOwnTemporal(DELETES_RUNS_AT_ONCE);
  temporal = await TemporalClient.connect(own);
  server = await startTestServer({
    env: { TEMPORAL_ADDRESS: own.address, EVERTURN_TASK_QUEUE: taskQueue },
    mcp: {
      tools: [
        { name: 'flood', annotations: { readOnlyHint: true }, handler: () => 'x'.repeat(400_000) },
        {
          name: 'slow',
          handler: (_, { signal }) => {
            running.push(signal);
            return new Promise<string>((resolve) => {
              signal.addEventListener('abort', () => resolve('too late'));
            });
          },
        },
      ],
    },
  });
});
afterAll(async () => {
  await server.stop();
  await temporal.close();
  await own.stop();
});

const remove = (url: string) => server.api.send('DELETE', url);

/** Everything that the stores contain of a session; empty if only the deletion mark remains. */
async function leftOf(sessionId: string, turnIds: string[]): Promise<string[]> {
  const { rows } = server.database;
  const left: string[] = [];
  for (const table of ['turns', 'blob_references', 'idempotency'] as const) {
    const found = await rows.selectFrom(table).selectAll().where('session_id', '=', sessionId).execute();
    if (found.length > 0) left.push(table);
  }
  const archived = await rows.selectFrom('archive').select('ordinal').where('turn_id', 'in', turnIds).execute();
  if (archived.length > 0) left.push('archive');
  if (existsSync(path.join(server.dataDir, 'blobs', sessionId))) left.push('blobs');
  const ids = [sessionWorkflowId(sessionId), ...turnIds.map(turnWorkflowId)];
  for (const id of ids) if ((await temporal.has(id)) || (await temporal.runs(id)) > 0) left.push(id);
  return left;
}

async function expectRemoved(sessionId: string, turnIds: string[]): Promise<void> {
  await eventually(async () => expect(await leftOf(sessionId, turnIds)).toEqual([]));
  // The last activity has ended too.
  await temporal.client.workflow.getHandle(deleteSessionWorkflowId(sessionId)).result();
}

async function rowOf(sessionId: string) {
  return server.database.rows.selectFrom('sessions').selectAll().where('id', '=', sessionId).executeTakeFirst();
}

/** Two turns, with a result too large for the log. The second one has waited in the queue. */
async function talk(chat: Chat): Promise<string[]> {
  const model = held(
    (call) => call.text('much'),
    (call) => call.finish(),
  );
  chat.script(use({ name: 'flood', id: 'f1' }), model.script, say('more'));
  const readers = [chat.turn('one', {}, { 'idempotency-key': newId('req') })];
  await model.reached;
  readers.push(chat.turn('two', { on_running: 'queue' }));
  await readers[1]?.turnId();
  model.release();
  await Promise.all(readers.map((reader) => reader.done));
  return Promise.all(readers.map((reader) => reader.turnId()));
}

test.concurrent('a deleted session is not found, and nothing of it remains in any store', async () => {
  const [chat, other] = [await server.chat({ spec: onTestServer }), await server.chat({ spec: onTestServer })];
  const [turnIds, otherTurns] = [await talk(chat), await talk(other)];
  const [first = ''] = turnIds;
  const { data } = await server.api.get(`${chat.path}/turns/${first}/events`);
  const [, file] = /files\/([0-9a-f]{64})/.exec(JSON.stringify(data)) ?? [];
  expect((await server.api.send('GET', `/v1/agents/draft-sessions/${chat.sessionId}`)).status).toBe(404);
  expect((await remove(`/v1/agents/draft-sessions/${chat.sessionId}`)).status).toBe(404);
  const answer = await remove(chat.path);
  expect([answer.status, answer.body]).toEqual([204, null]);
  const input = [{ type: 'user.message', content: 'still there?' }];
  for (const [method, url, body] of [
    ['GET', ''],
    ['DELETE', ''],
    ['POST', '/cancel', {}],
    ['GET', '/turns'],
    ['POST', '/turns', { input }],
    ['GET', `/turns/${first}`],
    ['GET', `/turns/${first}/events`],
    ['POST', `/turns/${first}/subscribe`, {}],
    ['GET', '/events'],
    ['GET', `/files/${file}`],
  ] as const) {
    const { status, body: error } = await server.api.send(method, chat.path + url, body);
    expect([status, error.error.code], `${method} ${url}`).toEqual([404, 'session_not_found']);
  }
  await expectRemoved(chat.sessionId, turnIds);
  expect(await rowOf(chat.sessionId)).toMatchObject({ title: null, metadata: null });
  // The other session is complete.
  expect((await server.api.list(`${other.path}/turns`, 25)).length).toBe(2);
  expect((await server.api.list(`${other.path}/turns/${otherTurns[0]}/events`)).length).toBe(4);
  expect(await leftOf(other.sessionId, otherTurns)).toContain('blobs');
});

test.concurrent.each(['draft-sessions', 'sessions'])('a draft is deleted as one of %s', async (resource) => {
  const spec = { model: { name: newId('req') } };
  const { body } = await server.api.send('POST', '/v1/agents/draft-sessions', { agent_spec: spec });
  const { id } = body.data;
  const reader = server.api.turn(id, 'hi');
  await reader.done;
  expect((await remove(`/v1/agents/${resource}/${id}`)).status).toBe(204);
  expect((await server.api.send('GET', `/v1/agents/draft-sessions/${id}`)).status).toBe(404);
  expect((await remove(`/v1/agents/${resource}/${id}`)).status).toBe(404);
  await expectRemoved(id, [await reader.turnId()]);
});

test.concurrent('a deletion during a model call ends the call, and readers get the end of the turn', async () => {
  const model = held(
    (call) => call.text('I was '),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [model.script] });
  const reader = chat.turn('go');
  await reader.says('I was');
  const late = server.api.subscribe(chat.sessionId, await reader.turnId());
  await late.says('I was');
  expect((await remove(chat.path)).status).toBe(204);
  for (const one of [reader, late]) {
    expect(await one.end()).toMatchObject({ status: 'cancelled', reason: 'client-cancelled' });
    await one.done;
  }
  await (
    await model.reached
  ).closed;
  model.release();
  await expectRemoved(chat.sessionId, [await reader.turnId()]);
});

test.concurrent('a deletion during a tool call cancels the tool, and the log says that its outcome is unknown', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'slow', id: 's1' })], spec: onTestServer });
  const reader = chat.turn('go');
  await eventually(() => expect(running.length).toBe(1));
  expect((await remove(chat.path)).status).toBe(204);
  const frames = await reader.done;
  expect(frames.find((frame) => frame.type === 'tool.response')).toMatchObject({ outcome: 'unknown_outcome' });
  expect(frames.at(-1)).toMatchObject({ type: 'turn.done', state: { status: 'cancelled' } });
  await eventually(() => expect(running[0]?.aborted).toBe(true));
  await expectRemoved(chat.sessionId, [await reader.turnId()]);
});

test.concurrent('a deletion closes the event streams of its MCP servers', async () => {
  const mcp = await TestMcpServer.start({ tools: [], protocol: '2025-11-25' });
  try {
    const servers = [{ type: 'inline' as const, name: 'own', url: mcp.url }];
    const chat = await server.chat({ scripts: [say('hi')], spec: { mcp_servers: servers } });
    const reader = chat.turn('go');
    await reader.done;
    await eventually(() => expect(mcp.openRequests).toBe(1));
    expect((await remove(chat.path)).status).toBe(204);
    await eventually(() => expect(mcp.openRequests).toBe(0));
    await expectRemoved(chat.sessionId, [await reader.turnId()]);
  } finally {
    await mcp.stop();
  }
});

test.concurrent('the Idempotency-Key of a deleted session creates a new session', async () => {
  const { agent } = await server.chat();
  const create = () =>
    server.api.send('POST', '/v1/agents/sessions', { agent_name: agent }, { 'idempotency-key': 'again' });
  const first = (await create()).body.data.id;
  expect((await create()).body.data.id).toBe(first);
  await remove(`/v1/agents/sessions/${first}`);
  const second = await create();
  expect(second.status).toBe(201);
  expect(second.body.data.id).not.toBe(first);
});

test.concurrent('a late command is rejected and leaves nothing behind', async () => {
  const chat = await server.chat();
  const reader = chat.turn('hi');
  await reader.done;
  await remove(chat.path);
  await expectRemoved(chat.sessionId, [await reader.turnId()]);
  const log = pino({ level: 'silent' });
  const commands = new SessionCommands({ client: temporal.client, taskQueue, log });
  const turnId = newId('turn');
  const command = createTurnCommand(turnId);
  const outcomes = await Promise.allSettled([
    commands.createTurn(chat.sessionId, command),
    ...[1, 2].map(() => commands.cancel(chat.sessionId, { close: false, upTo: turnId })),
  ]);
  const refused = { status: 'rejected', reason: expect.objectContaining({ code: 'session_not_found' }) };
  expect(outcomes).toEqual([refused, refused, refused]);
  expect(await temporal.has(turnWorkflowId(turnId))).toBe(false);
  await expectRemoved(chat.sessionId, [turnId]);
});

test('a removal that was not started, as after a crash, is started by the housekeeping', async () => {
  const chat = await server.chat({ spec: onTestServer });
  const turnIds = await talk(chat);
  const now = new Date().toISOString();
  await server.database.rows
    .updateTable('sessions')
    .set({ deleted_at: now, removal_at: now })
    .where('id', '=', chat.sessionId)
    .execute();
  expect((await server.api.send('GET', chat.path)).status).toBe(404);
  await server.restart();
  await expectRemoved(chat.sessionId, turnIds);
});

test('late data, and the last entries about the session, are removed an hour later', async () => {
  const chat = await server.chat();
  const reader = chat.turn('hi');
  await reader.done;
  await remove(chat.path);
  await expectRemoved(chat.sessionId, [await reader.turnId()]);
  const { rows } = server.database;
  const before = new Date(Date.now() - 3_600_000).toISOString();
  // A request that was on its way and came to nothing.
  const turnId = newId('turn');
  await rows.insertInto('turns').values({ id: turnId, session_id: chat.sessionId, created_at: before }).execute();
  await rows
    .updateTable('sessions')
    .set({ deleted_at: before, removal_at: before })
    .where('id', '=', chat.sessionId)
    .execute();
  await server.restart();
  await expect.poll(() => rowOf(chat.sessionId)).toBe(undefined);
  expect(await leftOf(chat.sessionId, [turnId])).toEqual([]);
});
