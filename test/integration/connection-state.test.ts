import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CONNECTION_REPLACED } from '../../src/core/transcript.ts';
import { ASKED_AGAIN } from '../../src/core/tool-records.ts';
import type { EventReader } from '../support/api-client.ts';
import { isAlive } from '../support/is-alive.ts';
import { say, textOf, use } from '../support/scripted-model.ts';
import { startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** The outcome of calls when the program that holds the state of a conversation is replaced by a new one. */

const program = fileURLToPath(new URL('../support/counting-mcp-server.ts', import.meta.url));
const counting = { command: process.execPath, args: [program], isolation: 'session' as const };

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({ servers: { counting, careless: { ...counting, stateful: false } } });
});
afterAll(() => server.stop());

const allow = {
  type: 'user.tool_approval',
  thread_id: 'main',
  tool_call_id: 'b1',
  approval: { status: 'allow' },
};

const look = (id: string) => use({ name: 'look', id });
const bump = use({ name: 'bump', id: 'b1' });
const counted = say('It counts.');

/** A session whose first turn has looked, and the program that has answered. */
async function lookedAt(name: string, config: { pause?: 'wait' } = {}): Promise<{ chat: Chat; pid: number }> {
  const onServer = { type: 'truefoundry-mcp-registry' as const, name, require_approval_for_tools: ['bump'] };
  const chat = await server.chat({ scripts: [look('l1'), counted], spec: { mcp_servers: [onServer], config } });
  return { chat, ...(await countOf(chat.turn('look'))) };
}

async function countOf(reader: EventReader): Promise<{ count: number; pid: number }> {
  expect(await reader.end()).toMatchObject({ status: 'done' });
  const { content } = await reader.type('tool.response');
  return JSON.parse(content) as { count: number; pid: number };
}

/** Ends a program, and returns once Everturn, its parent, has noticed. */
async function kill(pid: number): Promise<void> {
  process.kill(pid, 'SIGKILL');
  await expect.poll(() => isAlive(pid)).toBe(false);
}

/** The calls of which the model was told that the state at their server was lost before. */
function toldAfter(chat: Chat): (string | undefined)[] {
  const messages = chat.requests().at(-1)?.messages ?? [];
  return messages.filter((one) => textOf(one).includes(CONNECTION_REPLACED)).map((one) => one.tool_call_id);
}

const question = { type: 'tool.approval_required', tool_calls: [{ id: 'b1' }] };
const again = { type: 'tool.approval_required', tool_calls: [{ id: 'b1', reason: ASKED_AGAIN }] };

test('the model is told with the next result, and once, that a program was replaced between two calls', async () => {
  const { chat, pid } = await lookedAt('counting');
  await kill(pid);
  chat.script(look('l2'), counted, look('l3'), counted);
  await chat.turn('look').end();
  expect(toldAfter(chat)).toEqual(['l2']);
  await chat.turn('look').end();
  expect(toldAfter(chat)).toEqual(['l2']);
});

test('a turn whose approval came for a killed program ends with the same question, and runs the call then', async () => {
  const { chat, pid } = await lookedAt('counting');
  chat.script(bump, counted);
  expect(await chat.turn('bump').end()).toMatchObject({ required_actions: [question] });
  await kill(pid);
  const reader = chat.turn([allow]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: null, required_actions: [again] });
  expect((await reader.done).some(({ type }) => type === 'tool.response')).toBe(false);
  expect((await countOf(chat.turn([allow]))).count).toBe(1);
  expect(toldAfter(chat)).toEqual(['b1']);
});

test('a turn that waits asks once more, in the inbox, too', async () => {
  const { chat, pid } = await lookedAt('counting', { pause: 'wait' });
  chat.script(bump, counted);
  const reader = chat.turn('bump');
  await reader.next((one) => one.type === 'turn.paused');
  await kill(pid);
  expect(await answer(chat)).toMatchObject({ status: 200 });
  await reader.next(isAgain);
  await expectInInbox(chat);
  // It is no repetition of the first approval, although it is equal.
  expect(await answer(chat)).toMatchObject({ status: 200, body: { data: { accepted: ['b1'] } } });
  expect((await countOf(reader)).count).toBe(1);
  expect((await reader.done).filter(({ type }) => type.startsWith('tool'))).toMatchObject([
    question,
    { type: 'tool.decided', decision: 'allow', remaining: 0 },
    again,
    { type: 'tool.decided', decision: 'allow', remaining: 0 },
    { type: 'tool.response', tool_call_id: 'b1', outcome: 'succeeded' },
  ]);
  expect(toldAfter(chat)).toEqual(['b1']);
});

test('a server with "stateful": false is called on any connection, without a word', async () => {
  const { chat, pid } = await lookedAt('careless');
  chat.script(bump, counted);
  await chat.turn('bump').end();
  await kill(pid);
  expect((await countOf(chat.turn([allow]))).count).toBe(1);
  expect(toldAfter(chat)).toEqual([]);
});

test('a restart of Everturn replaces the programs, too', async () => {
  const { chat } = await lookedAt('counting', { pause: 'wait' });
  chat.script(bump, counted);
  const before = chat.turn('bump');
  await before.next((one) => one.type === 'turn.paused');
  const turnId = await before.turnId();
  await server.restart();
  const reader = server.api.subscribe(chat.sessionId, turnId);
  expect(await answer(chat)).toMatchObject({ status: 200 });
  await reader.next(isAgain);
  expect(await answer(chat)).toMatchObject({ status: 200 });
  expect((await countOf(reader)).count).toBe(1);
  expect(toldAfter(chat)).toEqual(['b1']);
});

function isAgain({ type, tool_calls: calls }: { type: string; tool_calls?: unknown }): boolean {
  return type === 'tool.approval_required' && JSON.stringify(calls).includes('"reason"');
}

async function answer({ path }: Chat): Promise<object> {
  return server.api.send('POST', `${path}/actions`, { input: [allow] });
}

/** The question is listed with its reason. */
async function expectInInbox({ sessionId }: Chat): Promise<void> {
  const listed = () => server.api.list<{ session_id: string; reason?: string }>('/v1/agents/actions');
  const own = async () => (await listed()).filter(({ session_id: id }) => id === sessionId);
  await expect.poll(own).toMatchObject([{ tool_call_id: 'b1', kind: 'approval', reason: ASKED_AGAIN, decisions: [] }]);
}
