import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { held, say, use, type ModelCall, type Script } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** Turns that are asked for their answers at the limits of their agents: of model calls, and of time. */

let server: TestServer;
let temporal: TemporalClient;
/** Runs in the tool `slow`. */
let whileSlow: () => Promise<unknown>;
beforeAll(async () => {
  temporal = await TemporalClient.connect({
    address: inject('temporalAddress'),
    namespace: inject('temporalNamespace'),
  });
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
        { name: 'slow', annotations: { readOnlyHint: true }, handler: async () => String(await whileSlow()) },
      ],
    },
  });
});
afterAll(async () => {
  await temporal.close();
  await server.stop();
});

const choices = (chat: Chat) => chat.requests().map((request) => request.tool_choice);

/** Calls a tool on every request. */
const stubborn: Script = (call: ModelCall) => {
  call.text('So far.');
  call.toolCall('look', {});
  call.finish();
};

/** Settles after a time, without a timer that could fire early. */
async function passes(ms: number): Promise<void> {
  const begun = performance.now();
  await expect.poll(() => performance.now() - begun, { interval: 20 }).toBeGreaterThan(ms);
}

test('a turn at its limit of model calls answers with the last one, whose calls do not run', async () => {
  const chat = await server.chat({
    scripts: Array.from({ length: 3 }, () => stubborn),
    spec: { ...onTestServer, config: { iteration_limit: 2, on_limit: 'answer' } },
  });
  const reader = chat.turn('go');
  const end = await reader.end();
  expect(end).toMatchObject({
    status: 'done',
    output: { content: 'So far.' },
    limit: 'iterations',
    // None was begun that could not be used.
    metrics: { model_calls: 2, tool_calls: 2, unreported_attempts: 0 },
  });
  expect(choices(chat)).toEqual([undefined, 'none']);
  const results = (await reader.done).filter(({ type }) => type === 'tool.response');
  expect(results).toMatchObject([{ content: 'seen' }, { content: expect.stringContaining('reached a limit') }]);
  const turn = await server.api.get(`${chat.path}/turns/${await reader.turnId()}`);
  expect(turn.data.state).toEqual(end);
  // The next turn has a limit of its own.
  chat.script(say('Well.'));
  const next = await chat.turn('and now?').end();
  expect([next, choices(chat).at(-1)]).toMatchObject([{ status: 'done', output: { content: 'Well.' } }, 'none']);
});

test('a turn with one model call answers at once', async () => {
  const chat = await server.chat({
    scripts: [stubborn],
    spec: { ...onTestServer, config: { iteration_limit: 1, on_limit: 'answer' } },
  });
  expect(await chat.turn('go').end()).toMatchObject({
    status: 'done',
    limit: 'iterations',
    metrics: { model_calls: 1, unreported_attempts: 0 },
  });
  expect(choices(chat)).toEqual(['none']);
});

test('a turn that ends within its limits, and one that fails at them, name none', async () => {
  const early = await server.chat({
    scripts: [use({ name: 'look' }), say('Done.')],
    spec: { ...onTestServer, config: { iteration_limit: 3, on_limit: 'answer', answer_after_seconds: 600 } },
  });
  const end = await early.turn('go').end();
  expect([end, choices(early)]).toMatchObject([{ status: 'done' }, [undefined, undefined]]);
  expect(end).not.toHaveProperty('limit');
  for (const on_limit of [undefined, null, 'fail' as const]) {
    const chat = await server.chat({
      scripts: Array.from({ length: 3 }, () => stubborn),
      spec: { ...onTestServer, config: { iteration_limit: 2, on_limit, answer_after_seconds: null } },
    });
    const failed = await chat.turn('go').end();
    expect([failed, choices(chat)]).toMatchObject([{ status: 'error' }, [undefined, undefined]]);
    expect(failed).not.toHaveProperty('limit');
  }
});

test('a last answer that does not fit its schema is repaired beyond the limit, as often as any', async () => {
  const schema = { type: 'object', required: ['city'] };
  const spec = {
    response_format: { type: 'json_schema' as const, json_schema: { name: 'place', schema } },
    config: { iteration_limit: 1, on_limit: 'answer' as const, structured_output: { max_repairs: 2 } },
  };
  const repaired = await server.chat({ scripts: [say('no'), say('{}'), say('{"city":"Nara"}')], spec });
  expect(await repaired.turn('where?').end()).toMatchObject({
    status: 'done',
    output_json: { city: 'Nara' },
    limit: 'iterations',
  });
  expect(choices(repaired)).toEqual(['none', 'none', 'none']);
  const broken = await server.chat({ scripts: [say('no'), say('{}'), say('[]')], spec });
  expect(await broken.turn('where?').end()).toMatchObject({
    status: 'error',
    message: expect.stringContaining('JSON Schema'),
    limit: 'iterations',
    metrics: { model_calls: 3 },
  });
});

test('a message that arrives during the last model call is answered, too, without tools', async () => {
  const last = held(
    (call) => call.text('One.'),
    (call) => call.finish(),
  );
  const chat = await server.chat({
    scripts: [use({ name: 'look' }), last.script, stubborn],
    spec: { ...onTestServer, config: { iteration_limit: 2, on_limit: 'answer' } },
  });
  const reader = chat.turn('go');
  await reader.says('One.');
  const message = { input: [{ type: 'user.message', content: 'and two?' }], on_running: 'steer' };
  expect((await server.api.send('POST', `${chat.path}/turns`, message)).status).toBe(200);
  last.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'So far.' }, limit: 'iterations' });
  expect(choices(chat)).toEqual([undefined, 'none', 'none']);
});

test('a turn whose time is up lets its tools end, then answers, and its sub-agents do, too', async () => {
  const sub = await server.chat({
    scripts: [use({ name: 'slow' }), stubborn],
    spec: { ...onTestServer, model: { name: 'any' } },
  });
  const begun = Promise.withResolvers<void>();
  whileSlow = async () => {
    begun.resolve();
    await passes(3_000);
    return 'slowly seen';
  };
  const chat = await server.chat({
    scripts: [
      use({ name: 'slow' }, { name: 'create_sub_agent', args: { name: 'sub', input: 'go', agent: sub.agent } }),
      stubborn,
    ],
    spec: { ...onTestServer, agents: [sub.agent], config: { answer_after_seconds: 3 } },
  });
  const reader = chat.turn('go');
  await begun.promise;
  expect(await reader.end()).toMatchObject({
    status: 'done',
    output: { content: 'So far.' },
    limit: 'time',
    metrics: { model_calls: 2 + choices(sub).length, unreported_attempts: 0 },
  });
  expect(choices(chat)).toEqual([undefined, 'none']);
  // On a busy machine the time may be up before the sub-agent begins.
  expect([[undefined, 'none'], ['none']]).toContainEqual(choices(sub));
  const slow = (await reader.done).filter((one) => one.type === 'tool.response' && one.content === 'slowly seen');
  expect(slow.map((one) => 'thread_id' in one && one.thread_id === 'main')).toContain(true);
});

test('the next model call of a turn whose time is up begins ahead as a forced one', async () => {
  whileSlow = () => passes(400);
  const chat = await server.chat({
    scripts: [use({ name: 'slow' }), say('Well.')],
    spec: { ...onTestServer, config: { answer_after_seconds: 0.3 } },
  });
  expect(await chat.turn('go').end()).toMatchObject({
    status: 'done',
    limit: 'time',
    metrics: { model_calls: 2, unreported_attempts: 0 },
  });
  expect(choices(chat)).toEqual([undefined, 'none']);
});

test('a turn that waits for an answer does not use up its time', async () => {
  const chat = await server.chat({
    scripts: [
      use({ name: 'ask_user_question', id: 'q1', args: { question: 'Why?' } }),
      use({ name: 'look' }),
      say('Well.'),
    ],
    spec: { ...onTestServer, config: { pause: 'wait', answer_after_seconds: 600 } },
  });
  const reader = chat.turn('go');
  await reader.type('turn.paused');
  const answer = { type: 'user.tool_response', thread_id: 'main', tool_call_id: 'q1', content: 'because' };
  expect((await server.api.send('POST', `${chat.path}/actions`, { input: [answer] })).status).toBe(200);
  const end = await reader.end();
  expect(end).toMatchObject({ status: 'done', output: { content: 'Well.' } });
  expect(end).not.toHaveProperty('limit');
  expect(choices(chat)).toEqual([undefined, undefined, undefined]);
  // The time ends later by what the turn has waited.
  const inputs = await temporal.modelCalls(await reader.turnId());
  const [before = 0, ...after] = inputs.map(({ forcedFromMs }) => forcedFromMs);
  const { waited_ms: waited = 0 } = end.status === 'done' ? end.metrics : {};
  expect(waited).toBeGreaterThan(0);
  expect(after).toEqual([before + waited, before + waited]);
});

test.each([0, -1, 31_536_001, '60'])('a time limit of %j is rejected', async (seconds) => {
  const spec = { model: { name: 'any' }, config: { answer_after_seconds: seconds } };
  const { status, body } = await server.api.send('PUT', '/v1/agents/timeless', spec);
  expect([status, body]).toMatchObject([400, { error: { param: 'config.answer_after_seconds' } }]);
});
