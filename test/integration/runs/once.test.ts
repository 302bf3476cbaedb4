import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { Run, RunItem } from '../../../src/api/runs/wire/run.ts';
import { EngineError } from '../../../src/engine/errors.ts';
import { TurnLimits } from '../../../src/engine/turn-limits.ts';
import { ApiClient } from '../../support/api-client.ts';
import { calls, inShort, RunAgent, user } from '../../support/runs.ts';
import { say, use, type Script } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';
import { eventually } from '../../support/eventually.ts';

/** "A call runs once": items that come back with their ids. */

let server: TestServer;
let ann: ApiClient;
let bob: ApiClient;
let root: ApiClient;
const added: unknown[] = [];
let started = Promise.withResolvers<void>();
let gate = Promise.withResolvers<void>();
beforeAll(async () => {
  const add = (n: unknown): string => {
    added.push(n);
    return `added ${String(n)}`;
  };
  server = await startTestServer({
    env: {
      EVERTURN_API_KEYS: 'ann=key-of-ann,bob=key-of-bob,root:admin=key-of-root',
      // A registered server would not be open to the agents of users.
      EVERTURN_ALLOW_PRIVATE_URLS: 'true',
    },
    mcp: {
      tools: [
        { name: 'add', handler: ({ n }) => add(n) },
        {
          name: 'slow_add',
          handler: async ({ n }) => {
            const result = add(n);
            started.resolve();
            await gate.promise;
            return result;
          },
        },
        {
          name: 'add_and_hang_up',
          handler: ({ n }, call) => {
            add(n);
            call.cut();
            return new Promise(() => undefined);
          },
        },
      ],
    },
  });
  const as = (key: string) => new ApiClient(server.api.url, key);
  [ann, bob, root] = [as('key-of-ann'), as('key-of-bob'), as('key-of-root')];
});
afterAll(() => server.stop());

const agent = (scripts: Script[], { api = ann, toolkit = {} } = {}): RunAgent =>
  new RunAgent({ api, model: server.model }, scripts, { toolkits: [{ type: 'mcp', url: server.mcp.url, ...toolkit }] });
const effects = (n: number): number => added.filter((one) => one === n).length;
const resultsOf = (run: Run): unknown[] =>
  run.output.flatMap((item) => (item.type === 'tool' ? [[item.tool_call_id, item.outcome, item.reused]] : []));

/** The model item of a run with one call of `tool`, and the run as it has ended. */
async function ended(tool: string, n: number): Promise<{ run: Run; item: RunItem }> {
  const run = await agent([use({ name: tool, id: 'c1', args: { n } }), say('Added.')]).run('Go');
  return { run, item: run.output[0] as RunItem };
}

test('46: the calls of a run in progress are refused, and its results are reused after its end', async () => {
  [started, gate] = [Promise.withResolvers(), Promise.withResolvers()];
  const one = agent([use({ name: 'slow_add', id: 'c1', args: { n: 46 } }), say('Added.'), say('As before.')]);
  const { id } = await one.run('Go', { wait_seconds: 0 });
  await started.promise;
  const { output } = await ann.get<Run>(`/v1/runs/${id}`);
  const early = await ann.send('POST', '/v1/runs', one.body([user('Go'), ...output]));
  expect([early.status, early.body.error.code]).toEqual([409, 'run_in_progress']);
  expect(early.body.error.message).toContain(id);
  gate.resolve();
  const first = await ann.get<Run>(`/v1/runs/${id}?wait_seconds=30`);
  const again = await one.run([user('Go'), ...output]);
  expect(inShort(again.output)).toEqual(['c1 completed', 'model']);
  expect(again.output[0]).toMatchObject({ reused: true, input: { n: 46 }, output: [{ text: 'added 46' }] });
  expect(again.output[0]).not.toHaveProperty('operation_id');
  expect([first.output[1], effects(46)]).toEqual([expect.not.objectContaining({ reused: true }), 1]);
  expect(one.requests.at(-1)?.messages.slice(1)).toEqual(one.requests.at(-2)?.messages.slice(1));
});

test('44: the input and output of a run that failed at a tool run nothing, nor does its model item alone', async () => {
  const { run, item } = await ended('add_and_hang_up', 44);
  expect(run).toMatchObject({ status: 'failed', error: { type: 'tool_execution_error' } });
  expect(inShort(run.output)).toEqual(['model c1', 'c1 failed']);
  const whole = await agent([say('Perhaps.')]).run([user('Go'), ...run.output]);
  expect([whole.status, inShort(whole.output)]).toEqual(['completed', ['model']]);
  const alone = await agent([say('Perhaps.')]).run([user('Go'), item]);
  expect(alone.status).toBe('completed');
  expect([...resultsOf(alone), ...resultsOf(run)]).toEqual([
    ['c1', 'unknown_outcome', true],
    ['c1', 'unknown_outcome', undefined],
  ]);
  expect(effects(44)).toBe(1);
});

test('a call runs if it has other arguments, was not begun, or if its item has no id of the caller', async () => {
  const { run, item } = await ended('add', 1);
  const again = (...input: unknown[]) => agent([say('Again.')]).run([user('Go'), ...input]);
  const ranAgain = [['c1', 'succeeded', undefined]];
  expect(resultsOf(await again({ ...item, id: undefined }))).toEqual(ranAgain);
  expect(resultsOf(await again({ ...item, id: `${item.id}9` }))).toEqual(ranAgain);
  expect(resultsOf(await again({ ...item, id: run.output[2]?.id }))).toEqual(ranAgain);
  expect(effects(1)).toBe(4);
  const other = { ...calls({ id: 'c1', name: 'add', args: { n: 2 } }), id: item.id };
  expect(resultsOf(await again(other))).toEqual(ranAgain);
  expect(effects(2)).toBe(1);
  for (const api of [bob, root]) {
    expect(resultsOf(await agent([say('Again.')], { api }).run([user('Go'), item]))).toEqual(ranAgain);
  }
  expect(effects(1)).toBe(6);
});

test('a call that a run was cancelled before it began runs, after the run has ended', async () => {
  const toolkit = { require_approval_for_tools: ['add'] };
  const paused = await agent([use({ name: 'add', id: 'c1', args: { n: 3 } })], { toolkit }).run('Go');
  expect(paused.status).toBe('requires_action');
  const one = agent([say('Now.')]);
  expect((await one.refusal([user('Go'), ...paused.output])).slice(0, 2)).toEqual([409, 'run_in_progress']);
  await ann.send('POST', `/v1/runs/${paused.id}/cancel`);
  await ann.get(`/v1/runs/${paused.id}?wait_seconds=30`);
  expect(resultsOf(await one.run([user('Go'), ...paused.output]))).toEqual([['c1', 'succeeded', undefined]]);
  expect(effects(3)).toBe(1);
});

test.each(['before', 'after'])(
  'equal requests with a key are one run, also if the first of them is rejected %s the second has begun',
  async (order) => {
    const [rejection, admission] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const admit = vi.spyOn(TurnLimits.prototype, 'admit');
    admit.mockImplementationOnce(async () => {
      await rejection.promise;
      throw new EngineError('too_many_turns', 'at this moment');
    });
    admit.mockImplementationOnce(async () => {
      await admission.promise;
      return () => undefined;
    });
    const one = agent([say('Once.'), say('Twice.')]);
    const send = () => ann.send<Run>('POST', '/v1/runs', one.body('Go'), { 'idempotency-key': one.name });
    const first = send();
    await eventually(() => expect(admit).toHaveBeenCalledTimes(1));
    const second = send();
    await eventually(() => expect(admit).toHaveBeenCalledTimes(2));
    const steps = [
      async () => {
        rejection.resolve();
        expect((await first).status).toBe(429);
      },
      async () => {
        admission.resolve();
        expect((await second).body.status).toBe('completed');
      },
    ];
    for (const step of order === 'before' ? steps : steps.toReversed()) await step();
    admit.mockRestore();
    const { id } = (await second).body;
    // As housekeeping does with the keys of other requests, a year later: that of a run is kept as long as the run.
    const later = new Date(Date.now() + 365 * 24 * 3_600_000).toISOString();
    await server.database.rows.deleteFrom('idempotency').where('created_at', '<', later).execute();
    expect((await send()).body.id).toBe(id);
    expect((await ann.get<Run>(`/v1/runs/${id}`)).status).toBe('completed');
    expect(one.requests.length).toBe(1);
  },
);

test('a key that was rejected can be used again, with another body', async () => {
  const one = agent([say('Once.')]);
  const send = (body: object) => ann.send<Run>('POST', '/v1/runs', body, { 'idempotency-key': one.name });
  expect((await send(one.body([]))).status).toBeGreaterThanOrEqual(400);
  vi.spyOn(TurnLimits.prototype, 'admit').mockRejectedValueOnce(new EngineError('too_many_turns', 'at this moment'));
  expect((await send(one.body('Go'))).status).toBe(429);
  vi.restoreAllMocks();
  expect((await send(one.body('Go on'))).body.status).toBe('completed');
});
