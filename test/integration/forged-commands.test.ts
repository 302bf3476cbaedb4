import { randomBytes } from 'node:crypto';
import { Client, Connection, WorkflowUpdateFailedError } from '@temporalio/client';
import { defaultPayloadConverter, type Payload } from '@temporalio/common';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { newId } from '../../src/engine/new-id.ts';
import { dataConverterFor } from '../../src/temporal/data-converter.ts';
import type { CreateTurnCommand } from '../../src/core/session.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** The attacks of a client of Temporal without a key on a server with keys. */

const EVERTURN_ENCRYPTION_KEYS = `k1:${randomBytes(32).toString('base64')}`;

let server: TestServer;
let connection: Connection;
/** A client without keys. */
let stranger: Client;
/** A client with them, to read our commands from a history. */
let insider: Client;

beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_ENCRYPTION_KEYS },
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
  connection = await Connection.connect({ address: inject('temporalAddress') });
  const namespace = inject('temporalNamespace');
  stranger = new Client({ connection, namespace });
  const dataConverter = dataConverterFor(new Cipher(loadConfig({ EVERTURN_ENCRYPTION_KEYS }).encryptionKeys));
  insider = new Client({ connection, namespace, ...(dataConverter && { dataConverter }) });
});
afterAll(async () => {
  await connection.close();
  await server.stop();
});

/** A session that waits for an approval of its tool. */
async function waitingChat(): Promise<Chat> {
  const chat = await server.chat({ scripts: [use({ name: 'write', id: 'w1' }), say('Done.')], spec: onTestServer });
  expect(await chat.turn('go').end()).toMatchObject({ required_actions: [{}] });
  return chat;
}

/** A turn that approves the pending call of a session, with the fields of its last command. */
async function approvalFor({ sessionId }: Chat): Promise<CreateTurnCommand> {
  const [command] = await commandsOf(sessionId);
  const { createdBy, owner, specHash, hasServers, limits } = command!;
  return {
    turnId: newId('turn'),
    createdAt: new Date().toISOString(),
    createdBy,
    owner,
    specHash,
    hasServers,
    limits,
    title: 'forged',
    previous: { turn: 'last' },
    input: [{ type: 'user.tool_approval', threadId: 'main', toolCallId: 'w1', approval: { status: 'allow' } }],
  };
}

async function storedCommands(sessionId: string): Promise<Payload[]> {
  const { events } = await insider.workflow.getHandle(`session/${sessionId}`).fetchHistory();
  return (events ?? []).flatMap(
    (event) => event.workflowExecutionUpdateAcceptedEventAttributes?.acceptedRequest?.input?.args?.payloads ?? [],
  );
}

async function commandsOf(sessionId: string): Promise<CreateTurnCommand[]> {
  const { payloadCodecs } = insider.options.loadedDataConverter;
  const decoded = await payloadCodecs[0]!.decode(await storedCommands(sessionId));
  return decoded.map((payload) => defaultPayloadConverter.fromPayload<CreateTurnCommand>(payload));
}

/** Encodes every argument as these bytes. Decodes what it receives. */
function sender(payload: Payload): Client {
  const [codec] = insider.options.loadedDataConverter.payloadCodecs;
  const encode = async (payloads: Payload[]) => payloads.map(() => payload);
  const dataConverter = { payloadCodecs: [{ encode, decode: codec!.decode.bind(codec) }] };
  return new Client({ connection, namespace: inject('temporalNamespace'), dataConverter });
}

function plain(value: unknown): Client {
  return sender(defaultPayloadConverter.toPayload(value));
}

/** The failure of an Update that is rejected. */
async function rejection(client: Client, sessionId: string, update: string): Promise<string> {
  const session = client.workflow.getHandle(`session/${sessionId}`);
  const error = await session.executeUpdate(update, { args: [null] }).catch((error: unknown) => error);
  expect(error).toBeInstanceOf(WorkflowUpdateFailedError);
  return String(error instanceof WorkflowUpdateFailedError && error.cause?.message);
}

async function approve(chat: Chat): Promise<unknown> {
  const answer = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  return chat.turn([answer]).end();
}

test('an unencrypted command is rejected, no tool runs, and the session continues', async () => {
  const chat = await waitingChat();
  const command = await approvalFor(chat);
  const calls = server.mcp.calls.length;
  expect(await rejection(plain(command), chat.sessionId, 'createTurn')).toContain('it is not encrypted');
  expect(await rejection(plain({ close: true }), chat.sessionId, 'cancelSession')).toContain('it is not encrypted');
  expect(server.mcp.calls).toHaveLength(calls);
  expect(await approve(chat)).toMatchObject({ status: 'done', output: { content: 'Done.' } });
  expect(server.mcp.calls).toHaveLength(calls + 1);
});

test('a command that was encrypted for another session, or altered, is rejected, and the session continues', async () => {
  const [mine, other] = [await waitingChat(), await waitingChat()];
  const [stored] = await storedCommands(other.sessionId);
  expect(await rejection(sender(stored!), mine.sessionId, 'createTurn')).toContain(
    'it is stored in temporal/workflow/',
  );
  const [own] = await storedCommands(mine.sessionId);
  const changed = { ...own, data: Buffer.from(own!.data!).fill(0, 60, 61) };
  expect(await rejection(sender(changed), mine.sessionId, 'createTurn')).toContain('it was altered or moved');
  expect(await approve(mine)).toMatchObject({ status: 'done' });
});

test('unencrypted signals are dropped with a line in the log, and the turn continues', async () => {
  const said = Promise.withResolvers<void>();
  const chat = await server.chat({
    scripts: [
      async (call) => {
        call.text('Well, ');
        await said.promise;
        call.text('done.').finish();
      },
    ],
  });
  const turn = chat.turn('go');
  await turn.says('Well, ');
  const [{ id }] = (await server.api.get(`${chat.path}/turns`)).data;
  await stranger.workflow.getHandle(`turn/${id}`).signal('cancelTurn', 'user');
  // It comes after the signals in the same history: once it is answered, they have been handled.
  expect(await rejection(plain({}), chat.sessionId, 'cancelSession')).toContain('it is not encrypted');
  said.resolve();
  expect(await turn.end()).toMatchObject({ status: 'done', output: { content: 'Well, done.' } });
});

test('workflows that were started unencrypted pause until they are accepted or their session is terminated', async () => {
  const before = await startTestServer({ env: { EVERTURN_ENCRYPTION_KEYS: '' } });
  const chat = await before.chat({ scripts: [say('before the keys'), say('accepted'), say('built anew')] });
  const body = { input: [{ type: 'user.message', content: 'go' }], stream: false };
  const send = () => before.api.send('POST', `${chat.path}/turns`, body);
  const lastStatus = async () => (await before.api.get(`${chat.path}/turns`)).data[0].state.status;
  // The response shows that the turn has started; a restart before its end would use up another of the model's answers.
  const sendAndWait = async (): Promise<void> => {
    expect((await send()).status).toBe(200);
    await expect.poll(lastStatus).toBe('done');
  };
  await sendAndWait();
  const attempts = async (workflowId: string) =>
    (await stranger.workflow.getHandle(workflowId).describe()).raw.pendingWorkflowTask?.attempt;

  await before.restart({ EVERTURN_ENCRYPTION_KEYS, EVERTURN_ACCEPT_UNENCRYPTED: 'true' });
  await sendAndWait();
  await before.restart({ EVERTURN_ACCEPT_UNENCRYPTED: 'false' });
  expect(JSON.stringify(await before.api.list(`${chat.path}/events`))).toContain('before the keys');
  const waiting = send().catch(() => undefined);
  const session = `session/${chat.sessionId}`;
  await expect.poll(() => attempts(session)).toBeGreaterThan(1);
  await stranger.workflow.getHandle(session).terminate();
  await waiting;
  await expect.poll(async () => (await send()).status, { interval: 500 }).toBe(200);
  await expect.poll(lastStatus).toBe('done');

  const asked = chat.requests().length;
  const [{ id: previousTurnId }] = (await before.api.get(`${chat.path}/turns`)).data;
  const turnId = newId('turn');
  const { taskQueue } = await stranger.workflow.getHandle(session).describe();
  const args = [{ turnId, sessionId: chat.sessionId, previousTurnId, input: [] }];
  const forged = await stranger.workflow.start('turn', { workflowId: `turn/${turnId}`, taskQueue, args });
  await expect.poll(() => attempts(forged.workflowId)).toBeGreaterThan(1);
  expect(chat.requests()).toHaveLength(asked);
  await forged.terminate();

  // The replay reads histories that began without keys.
  await before.restart({ EVERTURN_ACCEPT_UNENCRYPTED: 'true' });
  await before.stop();
});
