import { afterAll, beforeAll, expect, test } from 'vitest';
import type { SessionEvent } from '../../src/api/sessions/wire/events.ts';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { folded } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { DELETES_RUNS_AT_ONCE } from '../support/own-temporal.ts';
import type { TemporalClient } from '../support/temporal-client.ts';
import { isArchived } from './support/archived.ts';
import { messageFor, type Plan } from './support/plan.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { NEVER_IDLE } from './support/world-options.ts';
import { World } from './support/world.ts';
import type { Steps } from './support/world-options.ts';

/** Row 16: what operators do to workflows manually. */

const TEXT = 'one two three four five';

let it: World;
let operator: TemporalClient;
beforeAll(async () => {
  it = await World.start({
    env: NEVER_IDLE,
    dynamicConfig: {
      // Three steps of a turn.
      'limit.historyCount.suggestContinueAsNew': 30,
      // Otherwise runs as short as these would each be delayed by a second.
      'history.continueAsNewMinInterval': '20ms',
      ...DELETES_RUNS_AT_ONCE,
    },
  });
  operator = await it.temporal.operator();
});
afterAll(() => it.checkAndStop());

const speech = (): Plan => it.plan({ say: TEXT, hold: 3, tools: [{ name: 'look' }] }, { say: 'And on.' });
const payment = (hold: string): Plan =>
  it.plan({ say: 'I pay.', tools: [{ name: 'pay', args: { hold } }] }, { say: 'Paid.' });
/** The first call that is held, or else the first. */
const callOf = ({ steps }: Plan): string => {
  const calls = steps.flatMap(({ tools = [] }) => tools);
  return (calls.find(({ args }) => 'hold' in args) ?? calls[0])?.id ?? '';
};

/** A turn whose model has paused in the middle of a message. */
async function speaking(sessionId: string, plan = speech()): Promise<RecordedTurn> {
  const turn = await it.turn(sessionId, plan);
  await turn.words(3);
  return turn;
}

/** A turn whose tool runs and waits before its effect. */
async function paying(sessionId: string, plan: Plan): Promise<RecordedTurn> {
  const turn = await it.turn(sessionId, plan);
  await it.ledger.started(callOf(plan));
  return turn;
}

async function expectGoesOn(sessionId: string): Promise<void> {
  const turn = await it.turn(sessionId, it.plan({ say: TEXT, tools: [{ name: 'sync' }] }, { say: 'I am here.' }));
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'I am here.' } });
}

function outcomeIn(turn: RecordedTurn, call: string): unknown {
  const events = folded(turn.frames) as SessionEvent[];
  return events.flatMap((event) =>
    event.type === 'tool.response' && event.tool_call_id === call ? [event.outcome] : [],
  )[0];
}

function effectsOf(turnId: string, name: string): number {
  return it.ledger.effects.filter(({ operation, tool }) => operation.startsWith(`${turnId}/`) && tool === name).length;
}

const ENDING = {
  terminated: (turn: RecordedTurn) => operator.terminate(turnWorkflowId(turn.turnId)),
  'reset to its first task': (turn: RecordedTurn) => operator.reset(turnWorkflowId(turn.turnId), 'first'),
  'reset to its last task': (turn: RecordedTurn) => operator.reset(turnWorkflowId(turn.turnId), 'last'),
};

test.concurrent.each(Object.entries(ENDING))(
  'a running turn that is %s ends there, and repeats nothing',
  async (how, end) => {
    const [plan, pay] = [speech(), payment(how)];
    const one = await speaking(await it.session(), plan);
    const two = await paying(await it.session(), pay);
    await it.fault(() => end(one));
    await it.fault(() => end(two));
    expect(await one.done).toMatchObject({ status: 'cancelled' });
    expect(await two.done).toMatchObject({ status: 'cancelled' });
    expect(outcomeIn(two, callOf(pay))).toBe('unknown_outcome');
    it.ledger.goOn(how);
    await it.ledger.reached(callOf(pay));
    for (const { sessionId } of [one, two]) await expectGoesOn(sessionId);
    expect(effectsOf(two.turnId, 'pay')).toBe(1);
  },
);

test.concurrent.each(['first', 'last'] as const)(
  'a turn that has ended does not change when it is reset to its %s task',
  async (to) => {
    const sessionId = await it.session();
    const ended = await it.turn(sessionId, it.plan({ say: TEXT, tools: [{ name: 'pay' }] }, { say: 'Paid.' }));
    await ended.done;
    const asked = it.plan({ say: 'May I?', tools: [{ name: 'refund' }] }, { say: 'I have.' });
    const asking = await it.turn(sessionId, asked);
    await asking.done;
    for (const turn of [ended, asking]) await it.fault(() => operator.reset(turnWorkflowId(turn.turnId), to));
    await closed(turnWorkflowId(asking.turnId));
    const answered = await it.decide(sessionId, 'allow', callOf(asked));
    expect(await answered.done).toMatchObject({ status: 'done', output: { content: 'I have.' } });
    await expectGoesOn(sessionId);
  },
);

/** Enough for the turn to have at least three runs. */
const SYNCS: Steps = Array.from({ length: 7 }, () => ({ say: 'I sync.', tools: [{ name: 'sync' }] }));

const RUNS = {
  first: (runs: string[]) => runs[0],
  middle: (runs: string[]) => runs[1],
  last: (runs: string[]) => runs.at(-1),
};

const RESETS = Object.entries(RUNS).flatMap(([run, pick]) =>
  (['first', 'last'] as const).map((task) => ({ run, pick, task })),
);

test.concurrent.each(RESETS)(
  'a turn of several runs whose $run one is reset to its $task task ends there, or keeps its outcome',
  async ({ run, pick, task }) => {
    const hold = `${run} ${task}`;
    const pay = it.plan(...SYNCS, { say: 'I pay.', tools: [{ name: 'pay', args: { hold } }] }, { say: 'Paid.' });
    const ended = await it.turn(await it.session(), it.plan(...SYNCS, { say: 'Seen.', tools: [{ name: 'pay' }] }));
    const running = await paying(await it.session(), pay);
    await ended.done;
    for (const { turnId } of [ended, running]) {
      const runs = await operator.lineage(turnWorkflowId(turnId));
      expect(runs.length).toBeGreaterThan(2);
      await it.fault(() => operator.reset(turnWorkflowId(turnId), task, pick(runs)));
    }
    expect(await running.done).toMatchObject({ status: 'cancelled' });
    expect(outcomeIn(running, callOf(pay))).toBe('unknown_outcome');
    it.ledger.goOn(hold);
    await it.ledger.reached(callOf(pay));
    for (const { turnId, sessionId } of [ended, running]) {
      await closed(turnWorkflowId(turnId));
      expect(effectsOf(turnId, 'pay')).toBe(1);
      await expectGoesOn(sessionId);
    }
  },
);

test.concurrent('a turn that has waited in the queue repeats nothing when the run that waited is reset', async () => {
  const sessionId = await it.session();
  const [before, pay] = [speech(), payment('queued')];
  const running = await speaking(sessionId, before);
  const message = { type: 'user.message', content: messageFor(pay) };
  const { turnId = '' } = await it.recorder.send(sessionId, [message], 'queue');
  it.planned.goOn(before);
  await running.done;
  await it.ledger.started(callOf(pay));
  const turn = it.recorder.follow(sessionId, turnId);
  await turn.until((frames) => frames.some(({ type }) => type === 'model.message'));
  const [waited] = await operator.lineage(turnWorkflowId(turnId));
  await it.fault(() => operator.reset(turnWorkflowId(turnId), 'first', waited));
  expect(await turn.done).toMatchObject({ status: 'cancelled' });
  it.ledger.goOn('queued');
  await it.ledger.reached(callOf(pay));
  await closed(turnWorkflowId(turnId));
  expect(effectsOf(turnId, 'pay')).toBe(1);
  // A worker that has not noticed the reset may call the model with the result ahead of the workflow.
  const firsts = it.requestsFor(pay).filter(({ messages }) => messages.at(-1)?.role === 'user');
  expect(firsts).toHaveLength(1);
  await expectGoesOn(sessionId);
});

test.concurrent('a tool that ran beside another one when their turn was reset is not repeated', async () => {
  const pay = it.plan({ say: 'I do both.', tools: [{ name: 'pay', args: { hold: 'beside' } }, { name: 'look' }] });
  const turn = await paying(await it.session(), pay);
  // The history up to the task that receives this result has started the tool, and does not have its result.
  await turn.until((frames) => frames.some(({ type }) => type === 'tool.response'));
  await eventually(async () => expect(await operator.isIdle(turnWorkflowId(turn.turnId))).toBe(true));
  await it.fault(() => operator.reset(turnWorkflowId(turn.turnId), 'last'));
  expect(await turn.done).toMatchObject({ status: 'cancelled' });
  it.ledger.goOn('beside');
  await it.ledger.reached(callOf(pay));
  await closed(turnWorkflowId(turn.turnId));
  expect(effectsOf(turn.turnId, 'pay')).toBe(1);
  await expectGoesOn(turn.sessionId);
});

const LOSING = {
  terminated: (id: string) => operator.terminate(id),
  deleted: (id: string) => operator.delete(id),
  'reset to its first task': (id: string) => operator.reset(id, 'first'),
  'reset to its last task': (id: string) => operator.reset(id, 'last'),
};

test.concurrent.each(Object.entries(LOSING))('a session that is %s continues, and so do its turns', async (_, lose) => {
  const idle = await it.session();
  await expectGoesOn(idle);
  const plan = speech();
  const running = await it.session();
  // The cancelled turn ended long before the session learns of it again.
  const cancelled = await speaking(running);
  await it.recorder.api.send('POST', `/v1/agents/sessions/${running}/cancel`, {});
  expect(await cancelled.done).toMatchObject({ status: 'cancelled' });
  await expectGoesOn(running);
  const turn = await speaking(running, plan);
  const refund = it.plan({ say: 'May I?', tools: [{ name: 'refund' }] }, { say: 'I have.' });
  const asking = await it.turn(await it.session(), refund);
  await asking.done;
  for (const id of [idle, running, asking.sessionId]) await it.fault(() => lose(sessionWorkflowId(id)));

  await expectGoesOn(idle);
  it.planned.goOn(plan);
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'And on.' } });
  await expectGoesOn(running);
  const answered = await it.decide(asking.sessionId, 'allow', callOf(refund));
  expect(await answered.done).toMatchObject({ status: 'done', output: { content: 'I have.' } });
});

test.concurrent('a turn that is deleted keeps its archive; the reader of a running one gets an error', async () => {
  const sessionId = await it.session();
  const kept = await it.turn(sessionId, it.plan({ say: TEXT, tools: [{ name: 'pay' }] }, { say: 'Paid.' }));
  await kept.done;
  await eventually(() => expect(isArchived(it.folder, kept.turnId)).toBe(true));
  await it.fault(() => operator.delete(turnWorkflowId(kept.turnId)));

  const lost = await speaking(sessionId);
  await it.fault(() => operator.delete(turnWorkflowId(lost.turnId)));
  // Temporal terminates it before it deletes it, and a reader may see either.
  const heard = await lost.done.catch((error: unknown) => String(error));
  if (typeof heard === 'string') expect(heard).toMatch(/404 .*turn_not_found/);
  else expect(heard).toMatchObject({ status: 'cancelled' });
  // It may have been archived in between.
  const { status } = await it.recorder.api.send('GET', `/v1/agents/sessions/${sessionId}/turns/${lost.turnId}`);
  if (status === 404) it.recorder.forget(lost);
  await expectGoesOn(sessionId);
});

test('a workflow task that fails when an input is accepted, or while it waits, costs only time', async () => {
  const { taskQueue } = it.config.temporal;
  const [worker] = it.workers;
  const fresh = await it.session();
  const busy = await it.session();
  const pay = payment('task');
  const running = await paying(busy, pay);
  // It is accepted at once, and waits for the end of the turn before it.
  const waiting = it.recorder.send(busy, [{ type: 'user.message', content: messageFor(it.plan({ say: TEXT })) }]);
  await expect.poll(async () => (await operator.accepts(sessionWorkflowId(busy))).length).toBe(2);

  await worker?.kill();
  const taken = it.recorder.send(fresh, [{ type: 'user.message', content: messageFor(it.plan({ say: TEXT })) }]);
  const more = it.recorder.send(busy, [{ type: 'user.message', content: messageFor(it.plan({ say: TEXT })) }]);
  await it.fault(() => operator.failTask(taskQueue, sessionWorkflowId(fresh)));
  await it.fault(() => operator.failTask(taskQueue, sessionWorkflowId(busy)));
  await it.up();
  for (const sent of await Promise.all([waiting, taken, more])) expect(sent.outcome).toBe('accepted');
  it.ledger.goOn('task');
  expect(await running.done).toMatchObject({ status: 'cancelled' });
  for (const sessionId of [fresh, busy]) await expectGoesOn(sessionId);
});

async function closed(workflowId: string): Promise<void> {
  await operator.client.workflow
    .getHandle(workflowId)
    .result()
    .catch(() => undefined);
}
