import { pino } from 'pino';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { SessionCommands } from '../../src/engine/session-commands.ts';
import { sessionWorkflowId } from '../../src/core/temporal-names.ts';
import { createTurnCommand } from '../support/create-turn-command.ts';
import { eventually } from '../support/eventually.ts';
import { say, use } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** Sessions whose workflows end after a second at rest. */

const taskQueue = newId('req');
let server: TestServer;
let temporal: TemporalClient;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_SESSION_IDLE_SECONDS: '1', EVERTURN_TASK_QUEUE: taskQueue },
    mcp: { tools: [{ name: 'pay', annotations: { destructiveHint: true }, handler: () => 'paid' }] },
  });
  temporal = await TemporalClient.connect({
    address: inject('temporalAddress'),
    namespace: inject('temporalNamespace'),
  });
});
afterAll(async () => {
  await temporal.close();
  await server.stop();
});

interface Turn {
  id: string;
  previous_turn_id: string | null;
}

async function status({ sessionId }: Chat): Promise<string> {
  return (await temporal.client.workflow.getHandle(sessionWorkflowId(sessionId)).describe()).status.name;
}

const untilEnded = (chat: Chat) => eventually(async () => expect(await status(chat)).toBe('COMPLETED'));

/** A turn, with which the workflow of its session starts again if it has ended. Returns the id of the turn. */
async function turn(chat: Chat, text: string, more: object = {}): Promise<string> {
  const reader = chat.turn(text, more);
  expect((await reader.end()).status).toBe('done');
  return reader.turnId();
}

/** A session with a turn, whose workflow has ended. */
async function idleChat(): Promise<{ chat: Chat; first: string }> {
  const chat = await server.chat();
  const first = await turn(chat, 'first');
  await untilEnded(chat);
  return { chat, first };
}

const turns = (chat: Chat) => server.api.list<Turn>(`${chat.path}/turns`, 25);

test.concurrent('a session whose workflow has ended continues with its next turns', async () => {
  const { chat, first } = await idleChat();
  const ids = [first];
  for (const text of ['second', 'third']) {
    ids.unshift(await turn(chat, text));
    await untilEnded(chat);
  }
  expect((await turns(chat)).map(({ id, previous_turn_id }) => [id, previous_turn_id])).toEqual(
    ids.map((id, i) => [id, ids[i + 1] ?? null]),
  );
  // The conversation: each turn has a message and its answer.
  expect(chat.requests().map(({ messages }) => messages.length)).toEqual([1, 3, 5]);
});

test.concurrent.each(['queue', 'steer', 'reject'])('a message with on_running %s begins a turn', async (on_running) => {
  const { chat, first } = await idleChat();
  const second = await turn(chat, 'second', { on_running });
  expect(await turns(chat)).toMatchObject([{ id: second, previous_turn_id: first }, { id: first }]);
});

test.concurrent('a fork of an earlier turn finds it', async () => {
  const { chat, first } = await idleChat();
  await turn(chat, 'second');
  await untilEnded(chat);
  const fork = await turn(chat, 'instead', { previous_turn_id: first });
  // The list is the branch of the newest turn.
  expect(await turns(chat)).toMatchObject([{ id: fork, previous_turn_id: first }, { id: first }]);
  expect(chat.requests().at(-1)?.messages).toHaveLength(3);
});

test.concurrent('commands that find nothing to do have their usual answers', async () => {
  const { chat, first } = await idleChat();
  const answers: unknown[] = [];
  const send = async (path: string, body: object): Promise<void> => {
    await untilEnded(chat);
    const { status: code, body: answer } = await server.api.send('POST', `${chat.path}${path}`, body);
    answers.push([code, answer?.error?.code]);
  };
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'x', approval: { status: 'allow' } };
  const message = { type: 'user.message', content: 'x' };
  await send('/cancel', {});
  await send(`/turns/${first}/cancel`, {});
  await send('/turns', { input: [approval] });
  await send('/turns', { input: [message], previous_turn_id: newId('turn') });
  await send('/pause', {});
  await send('/cancel', { close: true });
  await send('/turns', { input: [message] });
  expect(answers).toEqual([
    [200, undefined],
    [200, undefined],
    [422, 'call_not_pending'],
    [404, 'turn_not_found'],
    [409, 'nothing_running'],
    [200, undefined],
    [409, 'session_closed'],
  ]);
});

test.concurrent('a session is deleted, with all runs of its workflow', async ({ expect }) => {
  const { chat } = await idleChat();
  await turn(chat, 'second');
  await untilEnded(chat);
  expect((await server.api.send('DELETE', chat.path)).status).toBe(204);
  // Temporal deletes a run after its next checkpoint, every half a minute.
  await expect.poll(() => temporal.runs(sessionWorkflowId(chat.sessionId)), { timeout: 120_000 }).toBe(0);
});

test.concurrent('a command that is repeated after its run of the workflow returns the turn that it started', async () => {
  const { chat, first } = await idleChat();
  const second = await turn(chat, 'second');
  const commands = new SessionCommands({ client: temporal.client, taskQueue, log: pino({ level: 'silent' }) });
  const repeat = async (turnId: string): Promise<unknown> => {
    await untilEnded(chat);
    const command = createTurnCommand(turnId);
    return commands.createTurn(chat.sessionId, command);
  };
  expect(await repeat(second)).toEqual({ turnId: second, previousTurnId: first, sequence: 2 });
  expect(await repeat(first)).toEqual({ turnId: first, previousTurnId: null, sequence: 1 });
  expect((await turns(chat)).map(({ id }) => id)).toEqual([second, first]);
  expect(chat.requests()).toHaveLength(2);
});

test.concurrent('a session in which a call waits keeps its workflow until the answer', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'pay', id: 'p' }), say('Paid.')], spec: onTestServer });
  expect(await chat.turn('pay').end()).toMatchObject({ status: 'done' });
  // Another one has the time to end.
  await idleChat();
  expect(await status(chat)).toBe('RUNNING');
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'p', approval: { status: 'allow' } };
  expect(await chat.turn([approval]).end()).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
  await untilEnded(chat);
});
