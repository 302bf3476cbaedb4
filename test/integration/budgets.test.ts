import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { ActionReader } from '../support/action-reader.ts';
import { ApiClient, type Frame } from '../support/api-client.ts';
import { held, say, use, type ModelCall, type Script } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** The limits of a turn: the tokens, the money, the model calls and the time of its agent's budget. */

let server: TestServer;
let temporal: TemporalClient;
const calls: string[] = [];
/** The operations whose first connection was cut. */
const cut = new Set<unknown>();
beforeAll(async () => {
  temporal = await TemporalClient.connect({
    address: inject('temporalAddress'),
    namespace: inject('temporalNamespace'),
  });
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => `${calls.push('look')}` },
        {
          name: 'flaky',
          annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true },
          handler: (_args, call) => {
            const id = call.meta['io.everturn/operation-id'];
            if (cut.has(id)) throw new Error('it does not work');
            cut.add(id);
            call.cut();
            return '';
          },
        },
      ],
    },
  });
});
afterAll(async () => {
  await temporal.close();
  await server.stop();
});

const by = { subject_id: 'local', subject_type: 'user', subject_slug: 'local' };

const send = async ({ path }: Pick<Chat, 'path'>, command: string, body: object = {}) => {
  const { status, body: answer } = await server.api.send('POST', `${path}/${command}`, body);
  return [status, 'error' in answer ? answer.error.code : answer];
};

const pauses = (events: Frame[]) =>
  events.filter((event) => event.type === 'turn.paused' || event.type === 'turn.resumed');

test('a turn that reaches its budget begins nothing, across a restart, until the budget is raised', async () => {
  const resumed = Promise.withResolvers<void>();
  const last: Script = async (call) => {
    await resumed.promise;
    call.text('Well.').finish();
  };
  const chat = await server.chat({
    scripts: [use({ name: 'look' }), use({ name: 'look' }), last],
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
  resumed.resolve();
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

test('the turns of a session share its budget, which stays raised', async () => {
  const chat = await server.chat({
    scripts: [say('One.'), use({ name: 'look' }), say('Two.'), say('Three.')],
    spec: { ...onTestServer, config: { budget: { scope: 'session', steps: 2 } } },
  });
  expect(await chat.turn('one').end()).toMatchObject({ status: 'done' });
  const reader = chat.turn('two');
  expect(await reader.type('turn.paused')).toMatchObject({
    reason: 'budget',
    budget: { scope: 'session', limit: { steps: 2 }, spent: { steps: 2, tokens: 30 } },
  });
  expect(chat.requests().length).toBe(2);
  const metrics = await (await fetch(`${server.api.url}/metrics`)).text();
  expect(metrics).toMatch(/^everturn_model_calls_refused_total\{scope="session"\} [1-9]/m);
  expect(await send(chat, 'resume', { budget: { steps: 2 } })).toEqual([422, 'budget_exceeded']);
  expect(await send(chat, 'force_answer')).toEqual([422, 'budget_exceeded']);
  expect(await send(chat, 'resume', { budget: { steps: 4 } })).toEqual([200, {}]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Two.' } });
  expect(pauses(await reader.done)[1]).toMatchObject({ by, budget: { scope: 'session', limit: { steps: 4 } } });
  expect(await chat.turn('three').end()).toMatchObject({ status: 'done', output: { content: 'Three.' } });
});

test('the time of earlier turns and that of the running one use up the seconds of a session', async () => {
  const passes = async () => {
    const begun = Date.now();
    await expect.poll(() => Date.now() - begun, { interval: 1 }).toBeGreaterThan(2);
  };
  const begins = (call: ModelCall) => call.text('Well');
  const [first, second] = [
    held(begins, (call) => call.finish()),
    held(begins, (call) => {
      call.toolCall('look', {});
      call.finish();
    }),
  ];
  const chat = await server.chat({
    scripts: [first.script, second.script, say('Two.')],
    spec: { ...onTestServer, config: { budget: { scope: 'session', seconds: 1000 } } },
  });
  const { rows } = server.database;
  const key = `session/${chat.sessionId}`;
  const one = chat.turn('one');
  await first.reached;
  await passes();
  first.release();
  expect(await one.end()).toMatchObject({ status: 'done' });
  const spending = rows.selectFrom('spending').selectAll().where('key', '=', key);
  await expect.poll(async () => (await spending.executeTakeFirst())?.worked_ms).toBeGreaterThan(0);
  const reader = chat.turn('two');
  await second.reached;
  // As if the first turn had taken that long.
  await rows.updateTable('spending').set({ worked_ms: 999_999 }).where('key', '=', key).execute();
  await passes();
  second.release();
  const pause = { reason: 'budget', budget: { scope: 'session', limit: { seconds: 1000 } } };
  expect(await reader.type('turn.paused')).toMatchObject(pause);
  expect(chat.requests().length).toBe(2);
  expect(await send(chat, 'resume', { budget: { seconds: 1000 } })).toEqual([422, 'budget_exceeded']);
  expect(await send(chat, 'resume', { budget: { seconds: 9000 } })).toEqual([200, {}]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Two.' } });
  const [paused, resumed] = pauses(await reader.done);
  expect(paused).toMatchObject({
    budget: { spent: { seconds: expect.toSatisfy((s: number) => s >= 1000 && s < 2000) } },
  });
  expect(resumed).toMatchObject({ budget: { limit: { seconds: 9000 } } });
  // What the call after the pause has in addition, so that the pause is not counted as work.
  const idle = (await temporal.modelCalls(await reader.turnId())).map(({ idleMs = 0 }) => idleMs);
  expect(idle).toEqual([0, 0, Date.parse(resumed!.created_at) - Date.parse(paused!.created_at)]);
});

test('a shared budget holds when tools are called again, and their retries are no attempts of the model', async () => {
  await server.restart({ EVERTURN_SUBJECT_BUDGET: 'day:steps=3' });
  const steps = Array.from({ length: 8 }, (_, i) => use({ name: 'flaky', id: `call_${i}` }));
  const [registered] = onTestServer.mcp_servers;
  const chat = await server.chat({
    spec: { mcp_servers: [{ ...registered!, require_approval_for_tools: [] }], config: { pause: 'wait' } },
    scripts: [...steps, say('All.')],
  });
  const turn = chat.turn('go');
  const report = { scope: 'subject', limit: { steps: 3 }, spent: { steps: 3 } };
  expect(await turn.type('turn.paused')).toMatchObject({ reason: 'budget', budget: report });
  expect([chat.requests().length, cut.size]).toEqual([3, 3]);
  await send(chat, 'cancel');
  expect(await turn.end()).toMatchObject({ status: 'cancelled', metrics: { model_calls: 3, unreported_attempts: 0 } });
});

test('the turns of all sessions of a subject share its budget, which an admin raises', async () => {
  await server.restart({
    EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann,bob=key-of-bob',
    EVERTURN_SUBJECT_BUDGET: 'month:steps=1',
  });
  const as = (key: string) => new ApiClient(server.server.url, key);
  const [root, ann, bob] = [as('key-of-root'), as('key-of-ann'), as('key-of-bob')];
  server.model.script('shared', say('One.'), say('Two.'), say('Three.'));
  await root.putAgent('shared', { model: { name: 'shared' }, config: { pause: 'wait' } });
  const first = await ann.turn(await ann.createSession('shared'), 'one').end();
  expect(first).toMatchObject({ status: 'done', output: { content: 'One.' } });
  const id = await ann.createSession('shared');
  const reader = ann.turn(id, 'two');
  const report = { scope: 'subject', limit: { steps: 1 }, spent: { steps: 1 } };
  expect(await reader.type('turn.paused')).toMatchObject({ reason: 'budget', budget: report });
  // Nothing was called ahead of the turn, either.
  expect(server.model.requestsTo('shared')).toHaveLength(1);
  // The budget is that of one subject.
  const other = await bob.turn(await bob.createSession('shared'), 'other').end();
  expect(other).toMatchObject({ status: 'done', output: { content: 'Two.' } });
  const resume = async (client: ApiClient, body: object) =>
    (await client.send('POST', `/v1/agents/sessions/${id}/resume`, body)).status;
  expect(await resume(ann, {})).toBe(422);
  expect(await resume(ann, { budget: { steps: 9 } })).toBe(403);
  await expect
    .poll(() => root.list('/v1/agents/actions?agent_name=shared'))
    .toMatchObject([{ kind: 'budget', budget: report }]);
  expect(await ann.list('/v1/agents/actions?agent_name=shared')).toEqual([]);
  expect(await resume(root, { budget: { steps: 2 } })).toBe(200);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Three.' } });
  // The call that was refused, and the one after the raise.
  expect(await temporal.modelCalls(await reader.turnId())).toHaveLength(2);
  // In the next period the budget is renewed.
  server.model.script('shared', say('Four.'));
  const next = ann.turn(id, 'three');
  await next.type('turn.paused');
  expect(await resume(ann, {})).toBe(422);
  const { rows } = server.database;
  await rows.updateTable('spending').set({ period: '2000-01' }).where('key', '=', 'subject/month/ann').execute();
  expect(await resume(ann, {})).toBe(200);
  expect(await next.end()).toMatchObject({ status: 'done', output: { content: 'Four.' } });
});

test('a model call that is cancelled before its first character uses the budget of its subject', async () => {
  await server.restart({ EVERTURN_API_KEYS: 'root:admin=key-of-root', EVERTURN_SUBJECT_BUDGET: 'month:tokens=1000' });
  const root = new ApiClient(server.server.url, 'key-of-root');
  const silent = held(
    () => undefined,
    (call) => call.finish(),
  );
  server.model.script('silent', silent.script);
  await root.putAgent('silent', { model: { name: 'silent' }, config: { pause: 'wait' } });
  const id = await root.createSession('silent');
  const reader = root.turn(id, 'word '.repeat(1_000));
  await Promise.all([silent.reached, reader.type('turn.created')]);
  const cancel = await root.send('POST', `/v1/agents/sessions/${id}/cancel`, {});
  expect([cancel.status, cancel.body]).toEqual([200, {}]);
  expect(await reader.end()).toMatchObject({ status: 'cancelled' });
  silent.release();
  const next = root.turn(await root.createSession('silent'), 'next');
  const { budget } = await next.type('turn.paused');
  expect(budget?.spent.tokens).toBeGreaterThan(1_250);
  expect(server.model.requestsTo('silent')).toHaveLength(1);
  next.close();
});
