import { expect, onTestFinished, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { World } from './support/world.ts';

/** Row 9: a worker that stands still until it is taken for dead, and then goes on as if nothing had happened. */

test('what a zombie still says and does counts for nothing', async () => {
  const it = await World.start();
  onTestFinished(() => it.stop());
  const [zombie] = it.workers;
  if (!zombie) throw new Error('there is one');
  const speech = it.plan(
    { say: 'one two three four five', sayFirst: 'uno dos tres cuatro cinco', hold: [2, 3], tools: [{ name: 'look' }] },
    { say: 'And on.' },
  );
  const payment = it.plan(
    { say: 'I pay.', tools: [{ name: 'pay', args: { hold: 'payment' } }] },
    { say: 'Who knows?' },
  );
  const speaking = await it.turn(await it.session(), speech);
  const paying = await it.turn(await it.session(), payment);
  await speaking.says('uno dos');
  await expect.poll(() => it.mcp.count('tools/call')).toBe(1);
  await it.addWorker();
  await it.fault(() => zombie.pause());
  // The rest of its answer, and the tool's result, wait for it in its sockets.
  it.planned.goOn(speech);
  it.ledger.goOn('payment');
  await speaking.says('one two three');
  expect(await paying.done).toMatchObject({ status: 'done', output: { content: 'Who knows?' } });
  zombie.goOn();
  await expect.poll(() => zombie.output.split('Activity not found on completion').length).toBeGreaterThan(2);
  it.planned.goOn(speech, 1);
  expect(await speaking.done).toMatchObject({ status: 'done', output: { content: 'And on.' } });
  expect(folded(paying.frames)).toContainEqual(
    expect.objectContaining({ type: 'tool.response', outcome: 'unknown_outcome' }),
  );
  await it.check();
});
