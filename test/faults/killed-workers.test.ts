import { expect, onTestFinished, test } from 'vitest';
import { World } from './support/world.ts';

/** Row 1: `kill -9` of a worker while the model speaks. */

const TEXT = 'one two three four five six seven eight nine ten';

test('killed behind the first, a middle and the last word: the message is begun again elsewhere', async () => {
  const it = await World.start({ workers: 2 });
  onTestFinished(() => it.stop());
  const [one, two] = it.workers;
  if (!one || !two) throw new Error('there are two');
  const resumed: number[] = [];
  let [running, spare] = [one, two];
  await spare.kill();
  for (const words of [1, 5, 10]) {
    const turn = await it.turn(
      await it.session(),
      it.plan({ say: TEXT, hold: words, tools: [{ name: 'look' }] }, { say: 'And on.' }),
    );
    await turn.words(words);
    await spare.start();
    const moment = await it.fault(() => running.kill());
    resumed.push(await it.resumed(turn, moment));
    [running, spare] = [spare, running];
  }
  await it.check();
  expect(resumed.toSorted((a, b) => a - b)[1]).toBeLessThan(5_000);
});
