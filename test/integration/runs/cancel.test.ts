import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Run } from '../../../src/api/runs/wire/run.ts';
import { calls, inShort, RunAgent, RunStream, user } from '../../support/runs.ts';
import { held, say, use, type ModelCall, type Script } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Runs that are cancelled or reach their time limit, and tools that run one after the other. */

let server: TestServer;
const ran: string[] = [];
let started = Promise.withResolvers<void>();
let gate = Promise.withResolvers<void>();
/** The reads that run at this moment: an attempt that is repeated counts once. */
const reading = new Set<unknown>();
/** The most reads that ran at once. */
let most = 0;
/** What each read waits for. */
let whileReading: (signal: AbortSignal) => Promise<unknown> = () => Promise.resolve();
beforeAll(async () => {
  const begin = (id: unknown): void => {
    ran.push(String(id));
    started.resolve();
  };
  server = await startTestServer({
    mcp: {
      tools: [
        {
          name: 'act',
          handler: async ({ id }) => {
            begin(id);
            await gate.promise;
            return `done ${String(id)}`;
          },
        },
        {
          name: 'read',
          annotations: { readOnlyHint: true },
          handler: async ({ id }, { signal }) => {
            begin(id);
            reading.add(id);
            most = Math.max(most, reading.size);
            await whileReading(signal);
            reading.delete(id);
            return `read ${String(id)}`;
          },
        },
      ],
    },
  });
});
afterAll(() => server.stop());

const agent = (scripts: Script[], params: object = {}): RunAgent =>
  new RunAgent(server, scripts, { toolkits: [{ type: 'mcp', server: 'test' }], ...params });
const act = (id: string) => ({ name: 'act', id, args: { id } });
const read = (id: string) => ({ name: 'read', id, args: { id } });

function tools(): void {
  [started, gate] = [Promise.withResolvers(), Promise.withResolvers()];
}

async function cancel(id: string): Promise<Run> {
  const { status, body } = await server.api.send<Run>('POST', `/v1/runs/${id}/cancel`, {});
  expect(status).toBe(200);
  return body;
}

const outcomes = (run: Run): unknown[] =>
  run.output.flatMap((item) => (item.type === 'tool' ? [[item.tool_call_id, item.outcome, item.output]] : []));

/** A run whose model has sent what `before` sends, and waits. */
async function speaking(
  before: (call: ModelCall) => void,
): Promise<{ stream: RunStream; call: ModelCall; id: string }> {
  const model = held(before, () => undefined);
  const stream = agent([model.script]).stream('Go');
  const call = await model.reached;
  return { stream, call, id: (await stream.headers).get('x-run-id') ?? '' };
}

test('38: cancelled during a model call, a run keeps the text, and its complete calls are cancelled', async () => {
  const { stream, call, id } = await speaking((one) =>
    one
      .text('I look')
      .text(' it up')
      .toolCall('read', { id: 'c1' }, 'c1')
      .delta({ tool_calls: [{ index: 1, id: 'c2', function: { name: 'read', arguments: '{"id": "c' } }] }),
  );
  await stream.next((event) => event.event === 'partial' && event.delta?.index === 2);
  const begun = performance.now();
  await cancel(id);
  await call.closed;
  expect(performance.now() - begun).toBeLessThan(10_000);
  const last = await stream.end();
  expect(last).toMatchObject({ event: 'response', status: 'cancelled', output: stream.items });
  expect(stream.items).toMatchObject([
    { type: 'model', content: [{ text: 'I look it up' }, { tool_call_id: 'c1' }], finish_reason: 'cancelled' },
    { type: 'tool', tool_call_id: 'c1', status: 'cancelled', output: [] },
  ]);
  expect(await server.api.get(`/v1/runs/${id}`)).toMatchObject({ status: 'cancelled', output: stream.items });
});

test('39: cancelled during the first of two tools in sequence, a run has the result of that one', async () => {
  tools();
  const one = agent([use(act('a1'), act('a2')), say('Both known.')], { tool_execution: 'sequential' });
  const { id } = await one.run('Go', { wait_seconds: 0 });
  await started.promise;
  expect(await cancel(id)).toMatchObject({ status: 'running' });
  gate.resolve();
  const run = await server.api.get<Run>(`/v1/runs/${id}?wait_seconds=30`);
  expect(run.status).toBe('cancelled');
  expect(outcomes(run)).toEqual([
    ['a1', 'succeeded', [{ type: 'text', text: 'done a1' }]],
    ['a2', 'cancelled', []],
  ]);
  expect(ran).toEqual(expect.not.arrayContaining(['a2']));
  await one.run([user('Go'), ...run.output, user('And?')]);
  expect(one.requests.at(-1)?.messages.slice(-3)).toMatchObject([
    { role: 'tool', tool_call_id: 'a1', content: 'done a1' },
    { role: 'tool', tool_call_id: 'a2' },
    { role: 'user' },
  ]);
});

test('40: cancelled before the first part, while paused, and after the end', async () => {
  const { stream, id } = await speaking(() => undefined);
  await cancel(id);
  expect(await stream.end()).toMatchObject({ event: 'response', status: 'cancelled', output: [], content: [] });
  const asking = agent([use({ name: 'door', id: 'd1' })], {
    tools: [{ name: 'door', description: 'opens', parameters: { type: 'object' } }],
  });
  const paused = await asking.run('Go');
  expect(paused.status).toBe('requires_action');
  await cancel(paused.id);
  const ended = await server.api.get<Run>(`/v1/runs/${paused.id}?wait_seconds=30`);
  expect([ended.status, inShort(ended.output)]).toEqual(['cancelled', ['model d1', 'd1 cancelled']]);
  const done = await agent([say('Done.')]).run('Go');
  expect(await cancel(done.id)).toEqual(done);
});

test('41: a run completes after its client has closed the connection, of a stream and of a plain request', async () => {
  for (const isStream of [true, false]) {
    const model = held(
      (call) => call.text('Still'),
      (call) => call.text(' here.').finish(),
    );
    const one = agent([model.script]);
    const connection = RunStream.open(server.api, '/v1/runs', { body: one.body('Go', { stream: isStream }) });
    const id = (await connection.headers).get('x-run-id') ?? '';
    await model.reached;
    connection.close();
    await expect(connection.done).rejects.toThrow(/abort/i);
    // The server notices it before it has run another one.
    await agent([say('Hi.')]).run('Go');
    model.release();
    expect(await server.api.get(`/v1/runs/${id}?wait_seconds=30`)).toMatchObject({
      status: 'completed',
      content: [{ text: 'Still here.' }],
    });
  }
});

test('49: reads of one message run at once, or one after the other in their order', async () => {
  const together = Promise.withResolvers<void>();
  for (const [execution, atOnce, pause] of [
    // None ends before all have begun.
    [
      'parallel',
      3,
      () => {
        if (reading.size === 3) together.resolve();
        return together.promise;
      },
    ],
    // Each is long enough for another one to begin, if that were wrong.
    ['sequential', 1, () => sleep(200)],
  ] as const) {
    most = 0;
    ran.length = 0;
    whileReading = pause;
    const script = [use(read('r1'), read('r2'), read('r3')), say('Read.')];
    const run = await agent(script, { tool_execution: execution }).run('Go');
    expect([inShort(run.output), most]).toEqual([
      ['model r1 r2 r3', 'r1 completed', 'r2 completed', 'r3 completed', 'model'],
      atOnce,
    ]);
    if (execution === 'sequential') expect([...new Set(ran)]).toEqual(['r1', 'r2', 'r3']);
  }
});

test('a run that reaches timeout_seconds fails, and keeps what it has', async () => {
  whileReading = (signal) => new Promise((resolve) => signal.addEventListener('abort', resolve));
  // A call in the input begins without an answer of a model.
  const input = [user('Go'), calls(read('t1'))];
  const run = await agent([say('Late.')], { timeout_seconds: 1 }).run(input);
  expect(run).toMatchObject({ status: 'failed', error: { type: 'timeout', name: 'AgentTimeoutError' } });
  const kept = outcomes(run);
  // On a slow machine the time may be up before the run has its tools: then it has nothing.
  const hasBegun = ran.includes('t1') || kept.length > 0;
  expect(kept).toEqual(hasBegun ? [['t1', 'cancelled', []]] : []);
});
