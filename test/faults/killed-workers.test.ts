import { afterAll, beforeAll, expect, test } from 'vitest';
import { wordsOf } from './support/plan.ts';
import { World } from './support/world.ts';

/** Row 1: `kill -9` of a worker while the model speaks, and when it has spoken. */

const TEXT = 'one two three four five six seven eight nine ten';

let it: World;
beforeAll(async () => {
  it = await World.start({ workers: 2 });
});
afterAll(() => it.checkAndStop());

test('killed behind the first, a middle and the last word, and behind the end: the turn goes on elsewhere', async () => {
  const [one, two] = it.workers;
  if (!one || !two) throw new Error('there are two');
  const resumed: number[] = [];
  let [running, spare] = [one, two];
  await spare.kill();
  for (const words of [1, 5, 10, 'all'] as const) {
    const hold = words === 'all' ? 9 : words;
    const plan = it.plan({ say: TEXT, hold, tools: [{ name: 'pay' }] }, { say: 'And on.' });
    const turn = await it.turn(await it.session(), plan);
    await turn.words(hold);
    let moment: number;
    if (words === 'all') {
      // The worker gets the whole answer, and can't tell Temporal.
      it.workersLine.down();
      it.planned.goOn(plan);
      await turn.words(wordsOf(TEXT).length);
      moment = await it.fault(() => running.kill());
      it.workersLine.up();
      await spare.start();
    } else {
      await spare.start();
      moment = await it.fault(() => running.kill());
    }
    resumed.push(await it.resumed(turn, moment));
    expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'And on.' } });
    expect([it.planned.attempts(plan, 0), it.planned.attempts(plan, 1)]).toEqual([2, 1]);
    [running, spare] = [spare, running];
  }
  // Half of them.
  expect(resumed.toSorted((a, b) => a - b)[1], `${resumed.join(' ')} ms`).toBeLessThan(5_000);
});
