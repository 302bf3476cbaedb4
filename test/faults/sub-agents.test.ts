import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ServerProcess } from '../support/server-process.ts';
import { approval, messageFor, type Plan } from './support/plan.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { World } from './support/world.ts';

/** `kill -9` of a worker, and then of everything, while the sub-agents of a turn write, run tools and wait. */

const TEXT = 'one two three four five six seven eight nine ten';

let world: World;
let running: ServerProcess;
let spare: ServerProcess;
beforeAll(async () => {
  // A turn that is to continue as new begins no call, and those of its sub-agents that are held here would not end.
  world = await World.start({ workers: 2, dynamicConfig: { 'limit.historyCount.suggestContinueAsNew': 80 } });
  const [one, two] = world.workers;
  if (!one || !two) throw new Error('there are two');
  [running, spare] = [one, two];
  await spare.kill();
});
afterAll(() => world.checkAndStop());

/** The call that starts a sub-agent with a plan. */
const starts = (name: string, plan: Plan) => ({ name: 'create_sub_agent', args: { name, input: messageFor(plan) } });

/** A turn whose sub-agents write, run a tool that must not run again, and wait for an approval, one level deeper. */
async function delegating(): Promise<{ sessionId: string; turn: RecordedTurn; plans: Record<string, Plan> }> {
  const word = `pay-${world.plans.size}`;
  const writing = world.plan({ say: TEXT, hold: 5, tools: [{ name: 'sync' }] }, { say: 'Written.' });
  const paying = world.plan({ say: 'I pay.', tools: [{ name: 'pay', args: { hold: word } }] }, { say: 'Who knows.' });
  const asking = world.plan({ say: 'May I?', tools: [{ name: 'refund' }] }, { say: 'Refunded.' });
  const outer = world.plan({ say: 'Ask.', tools: [starts('asking', asking), { name: 'look' }] }, { say: 'Asked.' });
  const tools = [starts('writing', writing), starts('paying', paying), starts('outer', outer)];
  const root = world.plan({ say: 'Go.', tools }, { say: 'All done.' });
  const sessionId = await world.session();
  const turn = await world.turn(sessionId, root);
  await turn.says('one two three four five');
  await turn.says('May I?');
  await world.ledger.started(`/${paying.id}_0_0`);
  return { sessionId, turn, plans: { writing, paying, asking, outer, root } };
}

/** The approval of the call that the nested sub-agent waits with. */
async function approveNested(sessionId: string, turn: RecordedTurn): Promise<RecordedTurn> {
  const end = await turn.done;
  if (end.status !== 'done') throw new Error(`the turn has ended: ${end.status}`);
  const [action] = end.required_actions;
  const decision = { ...approval('allow', action?.tool_calls[0]?.id ?? ''), thread_id: action?.thread_id };
  return world.recorder.turn(sessionId, [decision]);
}

const ENDED = { status: 'done', output: { content: 'All done.' } };

test('a worker is killed: another one continues all sub-agents, and one of them waits for the next turn', async () => {
  const { sessionId, turn, plans } = await delegating();
  await spare.start();
  await world.fault(() => running.kill());
  const end = await turn.done;
  expect(end).toMatchObject({ status: 'done', output: null, required_actions: [{ type: 'tool.approval_required' }] });
  const { writing, paying, asking } = plans;
  if (!writing || !paying || !asking) throw new Error('there are plans');
  expect([world.planned.attempts(writing, 0), world.planned.attempts(asking, 0)]).toEqual([2, 1]);

  // The next turn is started, and its sub-agents resume, after everything was down.
  await world.crash();
  await world.recover();
  const next = await approveNested(sessionId, turn);
  expect(await next.done).toMatchObject(ENDED);
  expect(await world.outcomes(sessionId)).toMatchObject({
    [`${paying.id}_0_0`]: 'unknown_outcome',
    [`${writing.id}_0_0`]: 'succeeded',
    [`${asking.id}_0_0`]: 'succeeded',
  });
  expect(world.planned.attempts(asking, 1)).toBe(1);
});

test('everything is killed while sub-agents work: the turn continues, and ends after the approval', async () => {
  const { sessionId, turn } = await delegating();
  await world.crash();
  await world.recover();
  expect(await (await approveNested(sessionId, turn)).done).toMatchObject(ENDED);
});

test('a turn is cancelled while its sub-agents work and a worker is killed: all of them end', async () => {
  const { sessionId, turn } = await delegating();
  await world.fault(async () => {
    await world.recorder.persist((api) => api.send('POST', `/v1/agents/sessions/${sessionId}/cancel`, {}));
    await Promise.all(world.workers.filter(({ isRunning }) => isRunning).map((one) => one.kill()));
    await world.up();
  });
  expect(await turn.done).toMatchObject({ status: 'cancelled', reason: 'client-cancelled' });
  const ended = turn.frames.flatMap((frame) => (frame.type === 'thread.done' ? [frame.title] : []));
  expect(ended.toSorted()).toEqual(['asking', 'outer', 'paying', 'writing']);
});
