import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ActionResource } from '../../src/api/sessions/wire/actions.ts';
import { eventually } from '../support/eventually.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** Agents with `on_unknown: "ask"`: a person says what became of a call whose outcome is unknown. */

let server: TestServer;
/** The operation ids of the calls that have reached the tool. */
let paid: string[] = [];
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        {
          name: 'pay',
          annotations: { readOnlyHint: false, destructiveHint: false },
          inputSchema: { type: 'object', properties: { amount: { type: 'number' }, losses: { type: 'number' } } },
          // The first results of a call are lost after the effect.
          handler: ({ amount, losses = 0 }, { meta, cut }) => {
            const operation = String(meta['io.everturn/operation-id']);
            paid.push(operation);
            if (paid.filter((one) => one === operation).length <= Number(losses)) cut();
            return `paid ${String(amount)}`;
          },
        },
      ],
    },
  });
});
afterAll(() => server.stop());

const mcp_servers = [{ ...onTestServer.mcp_servers[0]!, require_approval_for_tools: [] }];
const ending = { mcp_servers, config: { on_unknown: 'ask' as const } };
const waiting = { mcp_servers, config: { on_unknown: 'ask' as const, pause: 'wait' as const } };

const approve = (status: string, more: object = {}, thread = 'main') => ({
  type: 'user.tool_approval',
  thread_id: thread,
  tool_call_id: 'p1',
  approval: { status, ...more },
});
const tell = (content: string, thread = 'main') => ({
  type: 'user.tool_response',
  thread_id: thread,
  tool_call_id: 'p1',
  content,
});
const pay = (args: object) => use({ name: 'pay', args: { amount: 5, ...args }, id: 'p1' });
const answer = ({ path }: Chat, item: object) => server.api.send('POST', `${path}/actions`, { input: [item] });

const UNKNOWN = /may or may not have taken effect/;

/** The result of the call in the last request to the model. */
const told = (chat: Chat) =>
  chat
    .requests()
    .at(-1)
    ?.messages.find(({ role }) => role === 'tool')?.content;

const outcomes = (events: { type: string }[]) =>
  events.flatMap((one) => ('outcome' in one && one.type === 'tool.response' ? [one.outcome] : []));

/** A turn that has ended on a call whose outcome is unknown. */
async function asked(losses = 1): Promise<{ chat: Chat; operation: string }> {
  const chat = await server.chat({ scripts: [pay({ losses }), say('I see.')], spec: ending });
  const reader = chat.turn('pay');
  const end = await reader.end();
  expect(end).toMatchObject({
    status: 'done',
    output: null,
    required_actions: [
      { type: 'tool.response_required', tool_calls: [{ id: 'p1', unknown_outcome: expect.stringMatching(UNKNOWN) }] },
    ],
  });
  expect(outcomes(await reader.done)).toEqual([]);
  return { chat, operation: `${await reader.turnId()}/p1` };
}

test('a person says what happened, or leaves it unknown', async () => {
  const { chat } = await asked();
  await eventually(async () => {
    const actions = await server.api.list<ActionResource>('/v1/agents/actions');
    const own = actions.filter(({ session_id: id }) => id === chat.sessionId);
    expect(own).toMatchObject([{ kind: 'unknown_outcome', tool_call_id: 'p1', status: 'pending' }]);
  });
  const edited = await server.api.send('POST', `${chat.path}/turns`, {
    input: [approve('allow', { arguments: { amount: 1 } })],
  });
  expect([edited.status, edited.body.error.code]).toEqual([422, 'edit_not_allowed']);
  expect(await chat.turn([tell('The bank says that it was paid.')]).end()).toMatchObject({ status: 'done' });
  expect(told(chat)).toBe('The bank says that it was paid.');

  const other = await asked();
  const reader = other.chat.turn([approve('deny')]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I see.' } });
  expect(outcomes(await reader.done)).toEqual(['unknown_outcome']);
  expect(told(other.chat)).toMatch(UNKNOWN);
});

test('an approval has the call run again, with the same operation id, as often as its outcome is unknown', async () => {
  const { chat, operation } = await asked(2);
  expect(await chat.turn([approve('allow')]).end()).toMatchObject({
    required_actions: [{ type: 'tool.response_required', tool_calls: [{ id: 'p1' }] }],
  });
  const reader = chat.turn([approve('allow')]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I see.' } });
  expect(outcomes(await reader.done)).toEqual(['succeeded']);
  expect(told(chat)).toBe('paid 5');
  expect(paid.filter((one) => one === operation)).toHaveLength(3);
});

test('a turn that waits asks while it runs, and so do its sub-agents', async () => {
  const chat = await server.chat({ scripts: [pay({ losses: 2 }), say('I see.')], spec: waiting });
  const reader = chat.turn('pay');
  for (const round of [1, 2]) {
    await eventually(() => {
      expect(reader.frames.filter(({ type }) => type === 'tool.response_required')).toHaveLength(round);
      return Promise.resolve();
    });
    expect((await answer(chat, round === 1 ? approve('allow') : tell('It was paid once.'))).status).toBe(200);
  }
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I see.' } });
  const by = { subject_slug: 'local' };
  const events = (await reader.done).filter(({ type }) => type.startsWith('tool.'));
  expect(events).toMatchObject([
    { type: 'tool.response_required' },
    { type: 'tool.decided', decision: 'allow', remaining: 0, by },
    { type: 'tool.response_required' },
    { type: 'tool.response', outcome: 'succeeded', content: 'It was paid once.', by },
  ]);
  expect(told(chat)).toBe('It was paid once.');

  const parent = await server.chat({ spec: waiting });
  server.model.script(`${parent.agent}-sub`, pay({ losses: 1 }), say('Paid.'));
  const args = { name: 'sub', input: 'pay', model: `${parent.agent}-sub` };
  parent.script(use({ name: 'create_sub_agent', id: 's1', args }), say('Very well.'));
  const turn = parent.turn('go');
  const { thread_id: thread } = await turn.type('tool.response_required');
  expect((await answer(parent, approve('deny', {}, thread))).status).toBe(200);
  expect(await turn.end()).toMatchObject({ status: 'done', output: { content: 'Very well.' } });
  expect(outcomes(await turn.done)).toContain('unknown_outcome');
});

test('the question ends with its turn, and by default the model is told at once', async () => {
  const chat = await server.chat({ scripts: [pay({ losses: 1 }), say('Hi.')], spec: waiting });
  const reader = chat.turn('pay');
  await reader.type('turn.paused');
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect(await reader.end()).toMatchObject({ status: 'cancelled' });
  expect(outcomes(await reader.done)).toEqual(['unknown_outcome']);
  await chat.turn('hello').done;
  expect(told(chat)).toMatch(UNKNOWN);

  const plain = await server.chat({ scripts: [pay({ losses: 1 }), say('I see.')], spec: { mcp_servers } });
  expect(await plain.turn('pay').end()).toMatchObject({ status: 'done', required_actions: [] });
  expect(told(plain)).toMatch(UNKNOWN);
});
