import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import type { ServerProcess } from '../support/server-process.ts';
import type { Plan } from './support/plan.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { textOf } from '../support/scripted-model.ts';
import { World } from './support/world.ts';
import type { Steps } from './support/world-options.ts';

/** Rows 6 and 8: tool calls that are cut off between decision, start, effect and result. */

let it: World;
let worker: ServerProcess;
let spare: ServerProcess;
beforeAll(async () => {
  it = await World.start({ workers: 2 });
  const [one, two] = it.workers;
  if (!one || !two) throw new Error('there are two');
  [worker, spare] = [one, two];
  await spare.kill();
});
afterAll(() => it.checkAndStop());

/** The ids of the first calls of plans, by tool. */
function callsOf(...plans: Plan[]): Record<'pay' | 'sync' | 'look' | 'refund', string> {
  const tools = plans.flatMap(({ steps }) => steps[0]?.tools ?? []);
  return { pay: '', sync: '', look: '', refund: '', ...Object.fromEntries(tools.map(({ name, id }) => [name, id])) };
}

interface Begun {
  session: string;
  plan: Plan;
  turn: RecordedTurn;
}

async function begin(...steps: Steps): Promise<Begun> {
  const plan = it.plan(...steps);
  const session = await it.session();
  return { plan, session, turn: await it.turn(session, plan) };
}

/** A call of each tool, all in progress: those that need no approval, and the one that does, approved. */
async function callAll(first: 'hang' | 'swallow'): Promise<Begun[]> {
  const calling = (...names: string[]): Steps => [
    { say: 'Let me see.', tools: names.map((name) => ({ name, args: { first, amount: 5 } })) },
    { say: 'I see.' },
  ];
  const asking = await begin(...calling('refund'));
  expect(await asking.turn.done).toMatchObject({ status: 'done', output: null });
  const approved = await it.decide(asking.session, 'allow', callsOf(asking.plan).refund);
  return [await begin(...calling('pay', 'sync', 'look')), { ...asking, turn: approved }];
}

/** `kill -9` of the worker, which the other one replaces. Returns the moment. */
async function killWorker(): Promise<number> {
  const moment = await it.fault(() => worker.kill());
  [worker, spare] = [spare, worker];
  return moment;
}

/** How each tool was called: the effects, the requests, the operation ids. */
function arrivals(...ids: string[]): unknown[] {
  return ids.map((id) => {
    const its = it.ledger.effects.filter(({ operation }) => operation.endsWith(`/${id}`));
    const effects = its.filter(({ tookEffect }) => tookEffect).length;
    return {
      tool: its[0]?.tool,
      effects,
      arrivals: its.length,
      operations: new Set(its.map((one) => one.operation)).size,
    };
  });
}

const ONCE = { effects: 1, arrivals: 1, operations: 1 };
const REPEATED = { effects: 1, arrivals: 2, operations: 1 };
const DONE = { status: 'done', required_actions: [], output: { content: 'I see.' } };

/** The outcomes of `callAll`. */
async function expectCutOff(begun: Begun[]): Promise<void> {
  for (const { turn } of begun) expect(await turn.done).toMatchObject(DONE);
  const { pay, sync, look, refund } = callsOf(...begun.map(({ plan }) => plan));
  const outcomes = await Promise.all(begun.map(({ session }) => it.outcomes(session)));
  expect(Object.assign({}, ...outcomes)).toEqual({
    [pay]: 'unknown_outcome',
    [sync]: 'succeeded',
    [look]: 'succeeded',
    [refund]: 'unknown_outcome',
  });
  expect(arrivals(pay, sync, look, refund)).toEqual([
    { tool: 'pay', ...ONCE },
    { tool: 'sync', ...REPEATED },
    { tool: 'look', ...REPEATED, effects: 0 },
    { tool: 'refund', ...ONCE },
  ]);
  // The model is told the outcomes.
  const told = it.model.requests.flatMap(({ messages }) => messages);
  const unknown = told.filter((message) => textOf(message).includes('may or may not have taken effect'));
  const ids = new Set(unknown.map(({ tool_call_id: id }) => id));
  expect([pay, sync, look, refund].map((id) => ids.has(id))).toEqual([true, false, false, true]);
}

test('a result is lost after the effect', async () => {
  await expectCutOff(await callAll('swallow'));
});

test('the worker is killed after the effect', async () => {
  const begun = await callAll('hang');
  for (const { id } of begun.flatMap(({ plan }) => plan.steps[0]?.tools ?? [])) await it.ledger.reached(`/${id}`);
  await spare.start();
  const moment = await killWorker();
  for (const { turn } of begun) await it.resumed(turn, moment);
  await expectCutOff(begun);
});

test('the worker is cut off from Temporal before it can report the results, and killed', async () => {
  const tools = ['pay', 'sync', 'look'].map((name) => ({ name }));
  const plan = it.plan({ say: 'Let me see.', tools }, { say: 'I see.' });
  const { pay, sync, look } = callsOf(plan);
  const session = await it.session();
  // At the first effect, before its result is sent.
  const cut = it.ledger.reached(`/${pay}`).then(() => it.workersLine.down());
  const turn = await it.turn(session, plan);
  await cut;
  for (const id of [sync, look]) await it.ledger.reached(`/${id}`);
  const moment = await killWorker();
  it.workersLine.up();
  await worker.start();
  await it.resumed(turn, moment);
  expect(await turn.done).toMatchObject(DONE);
  expect(await it.outcomes(session)).toEqual({ [pay]: 'unknown_outcome', [sync]: 'succeeded', [look]: 'succeeded' });
});

test('the server is unavailable when a call is repeated: no reader reads that it was not executed', async () => {
  const tools = [{ name: 'sync', args: { first: 'hang' } }];
  const plan = it.plan({ say: 'Let me see.', tools }, { say: 'I see.' });
  const { sync } = callsOf(plan);
  const session = await it.session();
  const turn = await it.turn(session, plan);
  await it.ledger.reached(`/${sync}`);
  await it.fault(() => it.mcp.stop());
  // The attempt could not connect, and is repeated.
  await it.temporal.untilBegun(turnWorkflowId(turn.turnId), 'callTool', 3);
  await it.mcp.restart();
  expect(await turn.done).toMatchObject(DONE);
  expect(await it.outcomes(session)).toEqual({ [sync]: 'succeeded' });
  expect(arrivals(sync)).toEqual([{ tool: 'sync', ...REPEATED }]);
});

test('a turn is cancelled between two attempts at a call: no reader reads that it was not executed', async () => {
  const tools = [{ name: 'sync', args: { first: 'swallow' } }];
  const plan = it.plan({ say: 'Let me see.', tools });
  const { sync } = callsOf(plan);
  const session = await it.session();
  const turn = await it.turn(session, plan);
  await it.ledger.reached(`/${sync}`);
  await it.recorder.api.send('POST', `/v1/agents/sessions/${session}/cancel`, {});
  expect(await turn.done).toMatchObject({ status: 'cancelled' });
  expect(await it.outcomes(session)).toEqual({ [sync]: 'cancelled' });
});

/** A session that waits for the decision on a refund. */
async function refundThatWaits(): Promise<{ session: string; refund: string }> {
  const plan = it.plan({ say: 'May I?', tools: [{ name: 'refund', args: { amount: 5 } }] }, { say: 'I see.' });
  const { refund } = callsOf(plan);
  const session = await it.session();
  const turn = await it.turn(session, plan);
  await turn.done;
  return { session, refund };
}

test('killed between the decision and the start of the tool', async () => {
  const { session, refund } = await refundThatWaits();
  // A worker without the list of tools requests it before the turn continues.
  it.mcp.faults.set('tools/list', 'stall');
  await worker.kill();
  await worker.start();
  const approved = await it.decide(session, 'allow', refund);
  await it.temporal.untilBegun(turnWorkflowId(approved.turnId), 'connectTools');
  const moment = await it.crash();
  expect(arrivals(refund)).toMatchObject([{ arrivals: 0 }]);
  it.mcp.faults.clear();
  await it.recover();
  await it.resumed(approved, moment);
  expect(await approved.done).toMatchObject(DONE);
  expect(await it.outcomes(session)).toEqual({ [refund]: 'succeeded' });
  expect(arrivals(refund)).toMatchObject([ONCE]);
});

test('the API is killed after it has sent a decision, and before it responds', async () => {
  const { session, refund } = await refundThatWaits();
  await it.temporal.hang();
  const before = claims(session);
  const deciding = it.decide(session, 'allow', refund);
  await expect.poll(() => claims(session)).toBe(before + 1);
  await it.fault(() => Promise.all(it.apis.map((api) => api.kill())));
  await it.temporal.goOn();
  await it.up();
  const approved = await deciding;
  expect(await approved.done).toMatchObject(DONE);
  expect(arrivals(refund)).toMatchObject([ONCE]);
});

/** The number of commands on a session that are, or were, in flight; the bystanders send theirs to other sessions. */
function claims(sessionId: string): number {
  const database = new DatabaseSync(path.join(it.folder, 'catalog.db'), { readOnly: true });
  const row = database.prepare('SELECT count(*) AS n FROM idempotency WHERE session_id = ?').get(sessionId);
  database.close();
  return Number(row?.['n']);
}
