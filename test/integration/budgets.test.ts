import { afterAll, beforeAll, expect, test } from 'vitest';
import { ActionReader } from '../support/action-reader.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** What limits a turn: the tokens, the money, the model calls and the time of its agent's budget. */

let server: TestServer;
const calls: string[] = [];
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: () => `${calls.push('look')}` }],
    },
  });
});
afterAll(() => server.stop());

const by = { subject_id: 'local', subject_type: 'user', subject_slug: 'local' };

const send = async ({ path }: Pick<Chat, 'path'>, command: string, body: object = {}) => {
  const { status, body: answer } = await server.api.send('POST', `${path}/${command}`, body);
  return [status, 'error' in answer ? answer.error.code : answer];
};

const pauses = (events: { type: string }[]) => events.filter(({ type }) => /^turn\.(paused|resumed)$/.test(type));

test('a turn that reaches its budget begins nothing, across a restart, until the budget is raised', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'look' }), use({ name: 'look' }), say('Well.')],
    spec: { ...onTestServer, config: { budget: { tokens: 20, steps: 50 } } },
  });
  calls.length = 0;
  const before = await ActionReader.open(server.server.url);
  const reader = chat.turn('go');
  await reader.type('turn.paused');
  const turnId = await reader.turnId();
  // The first message was within the budget, the second one was not: neither its tool nor the next call has begun.
  expect([calls, chat.requests().length]).toEqual([['look'], 2]);
  expect(await send(chat, 'resume')).toEqual([422, 'budget_exceeded']);
  expect(await send(chat, 'resume', { budget: { tokens: 30 } })).toEqual([422, 'budget_exceeded']);
  expect(await send(chat, 'force_answer')).toEqual([422, 'budget_exceeded']);
  reader.close();
  before.close();
  await server.restart();
  const follower = server.api.subscribe(chat.sessionId, turnId);
  for (let i = 0; i < 2; i++) expect(await send(chat, 'resume', { budget: { tokens: 31 } })).toEqual([200, {}]);
  expect(await follower.end()).toMatchObject({ status: 'done', output: { content: 'Well.' } });
  expect([calls, chat.requests().length]).toEqual([['look', 'look'], 3]);
  const report = { scope: 'turn', limit: { tokens: 20, steps: 50 }, spent: { tokens: 30, steps: 2 } };
  expect(pauses(await follower.done)).toMatchObject([
    { type: 'turn.paused', reason: 'budget', budget: report },
    { type: 'turn.resumed', reason: 'budget', by, budget: { ...report, limit: { tokens: 31, steps: 50 } } },
  ]);
  const inbox = await (await ActionReader.open(server.server.url, undefined, before.cursor)).next(2);
  const action = { kind: 'budget', turn_id: turnId, tool_call_id: null, budget: report };
  expect(inbox.map(({ event }) => event)).toMatchObject([
    { type: 'action.created', action: { ...action, status: 'pending', decisions: [] } },
    { type: 'action.decided', action: { ...action, status: 'decided', decisions: [{ decision: 'allow', by }] } },
  ]);
});

test('a turn whose agent says so ends, and its sub-agents count', async () => {
  const chat = await server.chat({
    spec: { ...onTestServer, config: { budget: { steps: 3, on_exceeded: 'end' } } },
  });
  server.model.script(`${chat.agent}-sub`, use({ name: 'look' }), use({ name: 'look' }), say('Done.'));
  const model = `${chat.agent}-sub`;
  chat.script(use({ name: 'create_sub_agent', args: { name: 'sub', input: 'go', model } }), say('Well.'));
  calls.length = 0;
  const end = await chat.turn('go').end();
  expect(end).toMatchObject({
    status: 'error',
    code: 'budget_exceeded',
    message: 'The turn has used 3 of 3 model calls of its budget.',
    metrics: { model_calls: 3 },
  });
  expect(calls).toEqual(['look']);
});

test('an agent whose model has no known price cannot have a budget in USD', async () => {
  const spec = { model: { name: 'any' }, config: { budget: { usd: 1 } } };
  const { status, body } = await server.api.send('PUT', '/v1/agents/priceless', spec);
  expect([status, body]).toMatchObject([422, { error: { code: 'invalid_agent', param: 'config.budget.usd' } }]);
});
