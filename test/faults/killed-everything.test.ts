import { afterAll, beforeAll, expect, test } from 'vitest';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { isArchived, openCatalog } from './support/archived.ts';
import { NEVER_IDLE } from './support/world-options.ts';
import { World } from './support/world.ts';
import type { Steps } from './support/world-options.ts';

/** Row 3: `kill -9` of everything at once, in any state; after a restart all of it continues by itself. */

let it: World;
beforeAll(async () => {
  it = await World.start({
    env: NEVER_IDLE,
    dynamicConfig: {
      'limit.historyCount.suggestContinueAsNew': 60,
      // The successor of a run shorter than this is delayed: enough time to be killed in between.
      'history.continueAsNewMinInterval': '15s',
    },
  });
});
afterAll(() => it.checkAndStop());

async function begin(...steps: Steps) {
  const plan = it.plan(...steps);
  const session = await it.session();
  return { plan, session, turn: await it.turn(session, plan) };
}

const DONE = { status: 'done', required_actions: [] };
const TEXT = 'one two three four five six';

test('during a model call, tool calls, a pending approval, an idle session, and the archiving of a turn', async () => {
  const pending = await begin(
    { say: 'May I?', tools: [{ name: 'refund', args: { amount: 5 } }] },
    { say: 'Refunded.' },
  );
  const idle = await begin({ say: 'Hello.' });
  const speaking = await begin({ say: TEXT, hold: 3, tools: [{ name: 'look' }] }, { say: 'Seen.' });
  const acting = await begin(
    { say: '', tools: ['pay', 'sync', 'look'].map((name) => ({ name, args: { first: 'hang' } })) },
    { say: 'I see.' },
  );
  const ending = await begin({ say: 'Bye.', hold: 1 });
  expect((await pending.turn.done).status).toBe('done');
  await idle.turn.done;
  await speaking.turn.words(3);
  const [pay, sync, look] = acting.plan.steps[0]?.tools?.map(({ id }) => id) ?? [];
  for (const id of [pay, sync, look]) await it.ledger.reached(`/${id}`);
  await expect.poll(() => isArchived(it.folder, idle.turn.turnId)).toBe(true);
  await ending.turn.words(1);
  // The catalog is locked from here on, so the archiving of this turn cannot complete.
  const lock = openCatalog(it.folder);
  lock.exec('BEGIN IMMEDIATE');
  it.planned.goOn(ending.plan);
  await ending.turn.done;

  const moment = await it.crash();
  lock.close();
  expect(isArchived(it.folder, ending.turn.turnId)).toBe(false);
  await it.recover();
  // And again as soon as it has restarted.
  await it.crash();
  await it.recover();

  for (const { turn, plan } of [speaking, acting]) {
    await it.resumed(turn, moment);
    expect(await turn.done).toMatchObject({ ...DONE, output: { content: plan.steps[1]?.say } });
  }
  expect(await it.outcomes(acting.session)).toEqual({
    [pay ?? '']: 'unknown_outcome',
    [sync ?? '']: 'succeeded',
    [look ?? '']: 'succeeded',
  });
  const effects = it.ledger.effects.filter(({ operation }) => operation.startsWith(acting.turn.turnId));
  expect(effects.filter(({ tookEffect }) => tookEffect).map(({ tool }) => tool)).toEqual(['pay', 'sync']);
  // Its worker is gone, so the first sweep archives it.
  await expect.poll(() => isArchived(it.folder, ending.turn.turnId)).toBe(true);
  const approved = await it.decide(pending.session, 'allow', pending.plan.steps[0]?.tools?.[0]?.id ?? '');
  expect(await approved.done).toMatchObject({ ...DONE, output: { content: 'Refunded.' } });
  // Each session accepts another turn.
  for (const { session } of [pending, idle, speaking, acting, ending]) {
    expect(await (await it.turn(session, it.plan({ say: 'Here I am.' }))).done).toMatchObject(DONE);
  }
});

test('while a turn and a session continue as new', async () => {
  const syncs = Array.from({ length: 7 }, (_, n) => ({
    say: `Sync ${n}`,
    ...(n === 4 && { hold: 1 }),
    tools: [{ name: 'sync', args: { n } }],
  }));
  const { turn, plan } = await begin(...syncs, { say: 'That was all.' });
  const { session } = await begin({ say: 'Once.' });
  const workflows = [turnWorkflowId(turn.turnId), sessionWorkflowId(session)];
  const runs = (): Promise<string[]> => Promise.all(workflows.map((id) => it.temporal.runOf(id)));
  const [firstOfTurn, firstOfSession] = await runs();
  for (let n = 0; n < 4; n++) await (await it.turn(session, it.plan({ say: 'Again.' }))).done;
  await expect.poll(runs).toEqual([firstOfTurn, expect.not.stringMatching(firstOfSession ?? '')]);
  it.planned.goOn(plan);
  await expect.poll(runs).toEqual([expect.not.stringMatching(firstOfTurn ?? ''), expect.anything()]);
  const moment = await it.crash();
  // The new run had not executed anything; the last tool call of the old one had begun its model call.
  expect(it.planned.attempts(plan, 5)).toBeLessThanOrEqual(1);
  await it.recover();
  await it.resumed(turn, moment);
  expect(await turn.done).toMatchObject({ ...DONE, output: { content: 'That was all.' } });
  expect(await (await it.turn(session, it.plan({ say: 'And again.' }))).done).toMatchObject(DONE);
});
