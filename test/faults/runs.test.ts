import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Run } from '../../src/api/runs/wire/run.ts';
import { newId } from '../../src/engine/new-id.ts';
import { user } from '../support/runs.ts';
import { messageFor, type Plan } from './support/plan.ts';
import type { RecordedRun } from './support/recorded-run.ts';
import { OPERATOR, SUBJECTS } from './support/subjects.ts';
import { AGENT, World } from './support/world.ts';

/** Clients of the run API while the processes around them are killed; each test has a run in a model call. */

const TEXT = 'one two three four five six';
const [ANN] = SUBJECTS;

let it: World;
beforeAll(async () => {
  it = await World.start();
});
afterAll(() => it.checkAndStop());

const inputOf = (plan: Plan): object[] => [user(messageFor(plan))];

function begin(plan: Plan, { key, by = ANN, params }: { key?: string; by?: typeof ANN; params?: object } = {}) {
  return it.recorder.run(AGENT, { input: inputOf(plan), params }, { by, ...(key !== undefined && { key }) });
}

/** A run whose model pauses after the third word. */
async function speaking(): Promise<{ run: RecordedRun; plan: Plan }> {
  const plan = it.plan({ say: TEXT, hold: 3, tools: [{ name: 'sync' }] }, { say: 'Done it.' });
  const run = await begin(plan);
  await run.words(3);
  return { run, plan };
}

/** The items of such a run, each once and whole. */
async function expectWhole({ run }: { run: RecordedRun }): Promise<void> {
  expect(await run.done).toMatchObject({ status: 'completed', content: [{ text: 'Done it.' }] });
  expect(run.items).toMatchObject([
    { type: 'model', content: [{ text: TEXT }, { type: 'tool-call' }] },
    { type: 'tool', outcome: 'succeeded' },
    { type: 'model' },
  ]);
}

/** Runs with keys, whose requests are repeated until they are answered. */
function beginThree(): Promise<RecordedRun[]> {
  const keys = [newId('req'), newId('req'), newId('req')];
  return Promise.all(keys.map((key) => begin(it.plan({ say: 'Hello.' }), { key })));
}

async function expectGreetings(begun: Promise<RecordedRun[]>): Promise<void> {
  for (const one of await begun) {
    expect(await one.done).toMatchObject({ status: 'completed', content: [{ text: 'Hello.' }] });
  }
}

test('the API is killed while it starts runs and streams one: a repetition with the key completes the one run', async () => {
  const { run, plan } = await speaking();
  const begun = beginThree();
  await it.fault(() => it.apis[0]?.kill());
  await it.up();
  await expectGreetings(begun);
  expect(run.connections).toBeGreaterThan(1);
  it.planned.goOn(plan);
  await expectWhole({ run });
});

test('the worker is killed during a tool with effects: it has one, whatever is sent back', async () => {
  const words = await speaking();
  const tools = [{ name: 'pay', args: { first: 'hang' } }];
  const [plan, told] = [0, 1].map(() => it.plan({ say: 'I pay.', tools }, { say: 'Paid, perhaps.' })) as [Plan, Plan];
  const failing = await begin(plan, { by: OPERATOR });
  const telling = await begin(told, { by: OPERATOR, params: { on_tool_failure: 'tell' } });
  const calls = [plan, told].map(({ steps }) => steps[0]?.tools?.[0]?.id ?? '');
  await Promise.all(calls.map((id) => it.ledger.reached(`/${id}`)));
  await it.fault(() => it.workers[0]?.kill());
  await it.up();
  const error = { type: 'tool_execution_error', cause: { type: 'unknown_outcome' } };
  expect(await failing.done).toMatchObject({ status: 'failed', error });
  expect(await telling.done).toMatchObject({ status: 'completed', content: [{ text: 'Paid, perhaps.' }] });
  const outcome = { status: 'failed', outcome: 'unknown_outcome' };
  expect([failing.items[1], telling.items[1]]).toMatchObject([outcome, outcome]);
  for (const count of [2, 1]) {
    const input = [...inputOf(plan), ...failing.items.slice(0, count)];
    const again = await it.recorder.run(AGENT, { input }, { by: OPERATOR });
    expect(await again.done).toMatchObject({ status: 'completed', content: [{ text: 'Paid, perhaps.' }] });
    expect(again.items).toMatchObject([...(count === 1 ? [{ ...outcome, reused: true }] : []), { type: 'model' }]);
  }
  const paid = it.ledger.effects.filter(({ operation }) => calls.some((id) => operation.endsWith(`/${id}`)));
  expect(paid).toHaveLength(2);
  await expectWhole(words);
});

/** A run whose first refund is allowed for all of them, and whose model speaks before the next one. */
async function remembering(): Promise<{ run: RecordedRun; plan: Plan }> {
  const tools = [{ name: 'refund' }];
  const plan = it.plan(
    { say: 'I pay.', tools },
    { say: TEXT, hold: 3, tools },
    { say: 'Again.', tools },
    { say: 'Paid.' },
  );
  const run = await begin(plan);
  expect(await run.read(30)).toMatchObject({ status: 'requires_action' });
  expect(await run.decide(`${plan.id}_0_0`, { status: 'allow', remember: true })).toBe(200);
  await run.words(3);
  return { run, plan };
}

test('everything is killed: a run continues after the restart, also with its decisions, and one that waits keeps waiting', async () => {
  const waiting = await begin(it.plan({ say: 'Please.', tools: [{ name: 'door' }] }, { say: 'Open.' }));
  const planner = { type: 'client', name: 'planner', tools: [], dynamic: true };
  const refreshed = it.plan({ say: 'Please.', tools: [{ name: 'door' }] }, { say: 'Closed.' });
  const refreshing = await begin(refreshed, { params: { toolkits: [planner] }, by: OPERATOR });
  expect(await refreshing.read(30)).toMatchObject({ required_action: { refresh: ['planner'] } });
  const words = await speaking();
  const paying = await remembering();
  expect(await waiting.read(30)).toMatchObject({ status: 'requires_action' });
  const begun = beginThree();
  await sleep(30);
  await it.crash();
  await it.recover();
  await expectGreetings(begun);
  await expectWhole(words);
  expect(await paying.run.done).toMatchObject({ status: 'completed', content: [{ text: 'Paid.' }] });
  const log = await paying.run.log();
  expect(log.events.filter(({ type }) => type === 'tool.approval_required')).toHaveLength(1);
  expect(it.ledger.effects.filter(({ operation }) => operation.includes(paying.plan.id))).toHaveLength(3);
  expect(await waiting.read()).toMatchObject({ status: 'requires_action', output: [{ type: 'model' }] });
  const id = refreshed.steps[0]?.tools?.[0]?.id;
  const body = { tool_results: [{ tool_call_id: id, content: 'yes' }], refresh: [{ name: 'planner', tools: [] }] };
  await it.recorder.persist((api) => api.send('POST', `/v1/runs/${refreshing.id}/resume`, body), { as: OPERATOR });
  expect(await refreshing.done).toMatchObject({ status: 'completed', content: [{ text: 'Closed.' }] });
  await it.recorder.persist((api) => api.send('POST', `/v1/runs/${waiting.id}/cancel`), { as: ANN });
  expect(await waiting.done).toMatchObject({ status: 'cancelled', output: [{}, { outcome: 'cancelled' }] });
  const listed = await it.recorder.as(OPERATOR).list<Run>('/v1/runs');
  expect(listed.map(({ id }) => id).toSorted()).toEqual(it.recorder.runs.map(({ id }) => id).toSorted());
});
