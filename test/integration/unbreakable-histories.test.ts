import { afterAll, beforeAll, expect, test } from 'vitest';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import { newId } from '../../src/engine/new-id.ts';
import type { EventReader } from '../support/api-client.ts';
import type { RunningCall, TestTool } from '../support/mcp-server.ts';
import { DELETES_RUNS_AT_ONCE, startOwnTemporal, type OwnTemporal } from '../support/own-temporal.ts';
import { say, use, type Script } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/**
 * Each way in which a conversation could come to have a tool call without a result, with two, or in a form that a
 * provider rejects. The session must stay usable: the scripted model rejects each request that breaks the rules of
 * providers (`test/support/provider-rules.ts`). `crash.test.ts`, `continue-as-new.test.ts` and the fault tests apply
 * them to workers that are killed and to turns of several runs.
 */

let server: TestServer;
let own: OwnTemporal;
let operator: TemporalClient;
/** Called when a call of `pay` or `refund` with this `until` has started, which then waits until it is cancelled. */
const started = new Map<unknown, () => void>();

const TOOLS: TestTool[] = [
  { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
  { name: 'nothing', annotations: { readOnlyHint: true }, handler: () => ({ content: [] }) },
  { name: 'draw', annotations: { readOnlyHint: true }, handler: () => ({ content: [IMAGE] }) },
  { name: 'pay', handler: pay },
  { name: 'refund', annotations: { destructiveHint: true }, handler: pay },
];
const IMAGE = { type: 'image' as const, mimeType: 'image/png', data: Buffer.from('png!').toString('base64') };

async function pay({ until }: Record<string, unknown>, { signal }: RunningCall): Promise<string> {
  const start = started.get(until);
  if (!start) return 'paid';
  const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve));
  start();
  await aborted;
  return 'late';
}

/** A call that waits until it is cancelled, and its start. */
function stuck(
  name: 'pay' | 'refund',
  id: string,
): { call: { name: string; id: string; args: object }; begun: Promise<void> } {
  const until = newId('req');
  const begun = new Promise<void>((resolve) => started.set(until, resolve));
  return { call: { name, id, args: { until } }, begun };
}

beforeAll(async () => {
  own = await startOwnTemporal(DELETES_RUNS_AT_ONCE);
  operator = await TemporalClient.connect(own);
  server = await startTestServer({
    mcp: { tools: TOOLS },
    env: { TEMPORAL_ADDRESS: own.address, EVERTURN_TOOL_HEARTBEAT_SECONDS: '3' },
  });
});
afterAll(async () => {
  await server.stop();
  await operator.close();
  await own.stop();
});

const allow = (id: string, approval: object = { status: 'allow' }) => ({
  type: 'user.tool_approval',
  thread_id: 'main',
  tool_call_id: id,
  approval,
});
const respond = (id: string, content: string) => ({
  type: 'user.tool_response',
  thread_id: 'main',
  tool_call_id: id,
  content,
});

/** Starts a turn that calls `pay`, and waits until it runs. */
async function paying(chat: Chat, ...more: string[]): Promise<{ reader: EventReader; turnId: string }> {
  const { call, begun } = stuck('pay', 'p');
  chat.script(use(call, ...more.map((name) => ({ name, id: name }))));
  const reader = chat.turn('pay');
  await begun;
  return { reader, turnId: await reader.turnId() };
}

async function afterOneTurn(chat: Chat, ...scripts: Script[]): Promise<string> {
  chat.script(...scripts);
  const reader = chat.turn('go');
  await reader.done;
  return reader.turnId();
}

const cancel = (chat: Chat) => server.api.send('POST', `${chat.path}/cancel`, {});

type Way = (chat: Chat) => Promise<unknown>;

/** Events in a new session before a message of the user, on a server that the session shares with others. */
const WAYS: Record<string, Way> = {
  'a turn is cancelled while a tool with effects runs': async (chat) => {
    const { reader } = await paying(chat, 'look');
    await cancel(chat);
    await reader.done;
  },
  'the next turn begins while a tool with effects runs': async (chat) => void (await paying(chat, 'look')),
  'a turn is cancelled while a tool runs and another call needs an approval': async (chat) => {
    const { reader } = await paying(chat, 'refund');
    await cancel(chat);
    await reader.done;
  },
  'a turn is cancelled in the middle of a tool call of the model': async (chat) => {
    const reached = Promise.withResolvers<void>();
    chat.script(async (call) => {
      call.text('I look. ').delta({
        tool_calls: [{ index: 0, id: 'half', type: 'function', function: { name: 'look', arguments: '{"at": "x' } }],
      });
      await call.sent();
      reached.resolve();
      await call.closed;
    });
    const reader = chat.turn('look');
    await reached.promise;
    await reader.says('I look.');
    await cancel(chat);
    await reader.done;
  },
  'a turn is cancelled before the first text of the model': async (chat) => {
    const reached = Promise.withResolvers<void>();
    chat.script(async (call) => {
      reached.resolve();
      await call.closed;
    });
    const reader = chat.turn('look');
    // A speculative call reaches the model before there is a turn to cancel.
    await Promise.all([reached.promise, reader.turnId()]);
    await cancel(chat);
    await reader.done;
  },
  'a turn is terminated while a tool with effects runs': async (chat) => {
    const { reader, turnId } = await paying(chat, 'refund');
    await operator.terminate(turnWorkflowId(turnId));
    await reader.done;
  },
  'a turn is reset while a tool with effects runs': async (chat) => {
    const { reader, turnId } = await paying(chat);
    await operator.reset(turnWorkflowId(turnId), 'last');
    await reader.done;
  },
  'a call is denied': async (chat) => {
    await afterOneTurn(chat, use({ name: 'refund', id: 'r' }), say('very well'));
    await chat.turn([allow('r', { status: 'deny', reason: 'no' })]).done;
  },
  'a call is approved in a later turn': async (chat) => {
    await afterOneTurn(chat, use({ name: 'refund', id: 'r' }, { name: 'look', id: 'l' }), say('refunded'));
    await chat.turn([allow('r')]).done;
  },
  'the turn that runs an approved call is cancelled': async (chat) => {
    const { call, begun } = stuck('refund', 'r');
    await afterOneTurn(chat, use(call));
    const reader = chat.turn([allow('r')]);
    await begun;
    await cancel(chat);
    await reader.done;
  },
  'questions and client tools are answered by the client': async (chat) => {
    await afterOneTurn(
      chat,
      use({ name: 'ask_user_question', args: { question: 'Where?' }, id: 'q' }, { name: 'open_door', id: 'd' }),
      say('thanks'),
    );
    await chat.turn([respond('d', 'open'), respond('q', 'here')]).done;
  },
  'another branch leaves a pending call behind': async (chat) => {
    const first = await afterOneTurn(chat, say('hello'));
    await afterOneTurn(chat, use({ name: 'refund', id: 'r' }));
    await chat.turn('something else', { previous_turn_id: first }).done;
  },
  'another branch begins at a turn whose pending call was answered elsewhere': async (chat) => {
    const paused = await afterOneTurn(
      chat,
      use({ name: 'refund', id: 'r' }, { name: 'ask_user_question', args: { question: '?' }, id: 'q' }),
      say('refunded'),
    );
    await chat.turn([allow('r'), respond('q', 'yes')]).done;
    await chat.turn('no, wait', { previous_turn_id: paused }).done;
  },
  'a model repeats a call id in one message, in the next message, and in a later turn': async (chat) => {
    const again = { name: 'look', id: 'call_0' };
    await afterOneTurn(chat, use(again, again), use(again), say('one'));
    await afterOneTurn(chat, use(again, { ...again, name: 'refund' }));
    const { required_actions: actions } = (await server.api.get(`${chat.path}/turns`)).data[0].state;
    await chat.turn([allow(actions[0].tool_calls[0].id)]).done;
  },
  'call ids are empty, too long for other providers, and unprintable': (chat) =>
    afterOneTurn(
      chat,
      use(...['', 'i'.repeat(65), 'i'.repeat(100_000), 'a b', 'ü', '\u0000'].map((id) => ({ name: 'look', id }))),
      say('done'),
    ),
  'a model calls tools by names that no provider accepts': (chat) =>
    afterOneTurn(
      chat,
      use(...['multi_tool_use.parallel', 'look at', 'ü', 'n'.repeat(1_000)].map((name, i) => ({ name, id: `c${i}` }))),
      say('done'),
    ),
  'arguments are no JSON, no object, blank, or cut': (chat) =>
    afterOneTurn(
      chat,
      use(...['{"a": ', '5', '[]', 'null', '"x"', ' ', ''].map((args, i) => ({ name: 'look', args, id: `c${i}` }))),
      say('done'),
    ),
  'a client tool and an approval have blank arguments': async (chat) => {
    await afterOneTurn(
      chat,
      use({ name: 'open_door', args: ' ', id: 'd' }, { name: 'refund', args: '\n', id: 'r' }),
      say('done'),
    );
    await chat.turn([respond('d', 'open'), allow('r')]).done;
  },
  'a message with calls is cut at the limit of output tokens': (chat) =>
    afterOneTurn(chat, (call) => call.toolCall('look', '{"at":', 'c').finish('length')),
  'a message with calls is ended by a content filter': (chat) =>
    afterOneTurn(chat, (call) => call.toolCall('look', {}, 'c').finish('content_filter'), say('done')),
  'a message with calls breaks off, and the provider rejects the next attempt': (chat) =>
    afterOneTurn(
      chat,
      (call) => call.toolCall('look', {}, 'c').cut(),
      (call) => call.fail(400, 'no'),
    ),
  'a message has reasoning alone, a refusal alone, or nothing': async (chat) => {
    await afterOneTurn(chat, (call) => call.delta({ reasoning_content: 'hm' }).finish());
    await afterOneTurn(chat, (call) => call.delta({ refusal: 'I cannot.' }).finish());
    await afterOneTurn(
      chat,
      (call) => call.finish(),
      (call) => call.finish(),
    );
  },
  'the provider rejects the request with the results': (chat) =>
    afterOneTurn(chat, use({ name: 'look', id: 'l' }), (call) => call.fail(400, 'no')),
  'the provider rejects the request after an approved call': async (chat) => {
    await afterOneTurn(chat, use({ name: 'refund', id: 'r' }), (call) => call.fail(400, 'no'));
    await chat.turn([allow('r')]).done;
  },
  'results are empty, and images': (chat) =>
    afterOneTurn(
      chat,
      use({ name: 'nothing', id: 'n' }, { name: 'draw', id: 'd' }, { name: 'look', id: 'l' }),
      say('I see'),
    ),
  'a user message has an empty part': async (chat) => {
    const parts = ['', 'hello', ''].map((text) => ({ type: 'text', text }));
    await chat.turn([{ type: 'user.message', content: parts }]).done;
  },
  'a turn has no input, at the beginning and after an answer': async (chat) => {
    for (let n = 0; n < 2; n++) expect(await chat.turn([]).end()).toMatchObject({ status: 'done' });
  },
};

/** The same, with a change to the server. */
const WAYS_ALONE: Record<string, Way> = {
  'the worker stops while a tool with effects runs': async (chat) => {
    const { turnId } = await paying(chat);
    await server.restart();
    await server.api.subscribe(chat.sessionId, turnId).done;
  },
  'a turn in the middle of the conversation is deleted': async (chat) => {
    await afterOneTurn(chat, use({ name: 'look', id: 'c1' }), say('one'));
    const middle = await afterOneTurn(chat, use({ name: 'look', id: 'c2' }), say('two'));
    await afterOneTurn(chat, use({ name: 'look', id: 'c3' }), say('three'));
    await server.database.rows.deleteFrom('archive').where('turn_id', '=', middle).execute();
    await operator.delete(turnWorkflowId(middle));
    await server.restart();
  },
  'the turn that requested an approval is deleted after the approved call has run': async (chat) => {
    await afterOneTurn(chat, say('hello'));
    const paused = await afterOneTurn(chat, use({ name: 'refund', id: 'r' }));
    chat.script(say('done'));
    await chat.turn([allow('r')]).done;
    await server.database.rows.deleteFrom('archive').where('turn_id', '=', paused).execute();
    await operator.delete(turnWorkflowId(paused));
    await server.restart();
  },
  'a call is approved after its turn was archived and the worker restarted': async (chat) => {
    const paused = await afterOneTurn(chat, use({ name: 'refund', id: 'r' }));
    await server.restart();
    const { rows } = server.database;
    const archived = () => rows.selectFrom('turns').select('archived').where('id', '=', paused).executeTakeFirst();
    await expect.poll(archived).toMatchObject({ archived: 1 });
    await operator.delete(turnWorkflowId(paused));
    chat.script(say('refunded'));
    await chat.turn([allow('r')]).done;
  },
  'a tool has vanished when its call is approved': async (chat) => {
    await afterOneTurn(chat, use({ name: 'refund', id: 'r' }), say('I see'));
    await server.mcp.setTools(TOOLS.filter(({ name }) => name !== 'refund'));
    try {
      await chat.turn([allow('r')]).done;
    } finally {
      await server.mcp.setTools(TOOLS);
    }
  },
};

test.each(Object.entries(WAYS_ALONE))('%s: the session continues', (_, happens) => expectContinues(happens));
test.concurrent.each(Object.entries(WAYS))('%s: the session continues', (_, happens) => expectContinues(happens));

async function expectContinues(happens: Way): Promise<void> {
  const chat = await server.chat({ spec: { ...onTestServer, client_tools: [DOOR] } });
  await happens(chat);
  const before = chat.requests().length;
  expect(await chat.turn('and now?').end()).toMatchObject({ status: 'done', output: { content: 'ok' } });
  expect(chat.requests().length).toBe(before + 1);
  expect(chat.requests().at(-1)?.messages.at(-1)).toEqual({ role: 'user', content: 'and now?' });
}

const DOOR = { name: 'open_door', input_schema: { type: 'object' } };

test('an edited draft: calls are answered that the new agent does not have', async () => {
  const name = `draft-${Date.now()}`;
  const spec = { ...onTestServer, model: { name }, client_tools: [DOOR] };
  const { body } = await server.api.send('POST', '/v1/agents/draft-sessions', { agent_spec: spec });
  const { id } = body.data;
  server.model.script(name, use({ name: 'refund', id: 'r' }, { name: 'open_door', id: 'd' }));
  await server.api.turn(id, 'go').done;
  await server.api.send('PATCH', `/v1/agents/draft-sessions/${id}`, { agent_spec: { model: { name } } });
  expect(await server.api.turn(id, [allow('r'), respond('d', 'open')]).end()).toMatchObject({ status: 'done' });
  expect(await server.api.turn(id, 'and now?').end()).toMatchObject({ status: 'done', output: { content: 'ok' } });
});
