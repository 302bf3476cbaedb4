import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ServerProcess } from '../support/server-process.ts';
import { World } from './support/world.ts';

/** Row 13: workers that are stopped during work. A shutdown is neither a cancel nor a success. */

/** How long tools may finish, and about how long it takes to stop a worker with a tool that does not. */
const SHUTDOWN_SECONDS = 10;

let it: World;
let worker: ServerProcess;
let other: ServerProcess;
beforeAll(async () => {
  it = await World.start({ workers: 2, env: { EVERTURN_SHUTDOWN_SECONDS: String(SHUTDOWN_SECONDS) } });
  const [one, two] = it.workers;
  if (!one || !two) throw new Error('there are two');
  [worker, other] = [one, two];
});
afterAll(() => it.checkAndStop());

const DONE = { status: 'done', required_actions: [], output: { content: 'And on.' } };

test('SIGTERM during model calls and tools: repeatable work moves to another worker at once; the rest gets time to finish', async () => {
  await other.kill();
  const speaking = it.plan({ say: 'one two three', hold: 2 });
  // Repeatable calls that hang are repeated. Slow ones end after the model call has moved.
  const acting = it.plan(
    {
      say: '',
      tools: [
        { name: 'sync', args: { first: 'hang' } },
        { name: 'look', args: { first: 'hang' } },
        { name: 'pay', args: { hold: 'slow' } },
        { name: 'pay', args: { first: 'hang' } },
      ],
    },
    { say: 'And on.' },
  );
  const [sync, look, slow, stuck] = acting.steps[0]?.tools?.map(({ id }) => id) ?? [];
  const spoken = await it.session();
  const acted = await it.session();
  const speech = await it.turn(spoken, speaking);
  const action = await it.turn(acted, acting);
  await speech.words(2);
  for (const id of [sync, look, stuck]) await it.ledger.reached(`/${id}`);
  await expect.poll(() => it.mcp.calls.length).toBe(4);
  await other.start();

  let exit: Promise<number | null> | undefined;
  const moment = await it.fault(() => void (exit = worker.stop()));
  const resumed = await it.resumed(speech, moment);
  it.ledger.goOn('slow');
  expect(await speech.done).toMatchObject({ ...DONE, output: { content: 'one two three' } });
  expect(it.planned.attempts(speaking, 0)).toBe(2);
  expect(await exit).toBe(0);
  expect(await action.done).toMatchObject(DONE);
  expect(await it.outcomes(acted)).toEqual({
    [sync ?? '']: 'succeeded',
    [look ?? '']: 'succeeded',
    [slow ?? '']: 'succeeded',
    [stuck ?? '']: 'unknown_outcome',
  });
  // It waits neither for a time-out nor for the tools of the worker that stops.
  expect(resumed).toBeLessThan(SHUTDOWN_SECONDS * 1000);
});

test('rolling restarts during a long turn', async () => {
  if (!worker.isRunning) await worker.start();
  const rounds = process.env['LONG'] ? 5 : 2;
  // Each of these waits until a worker is stopped: the turn lasts as long as the restarts.
  const plan = it.plan(
    ...Array.from({ length: rounds }, () => [
      { say: 'Let me see.', hold: 1, tools: [{ name: 'pay', args: { ms: 200 } }] },
      { say: 'Now this.', tools: [{ name: 'sync', args: { first: 'hang' } }, { name: 'pay' }] },
    ]).flat(),
    { say: 'And on.' },
  );
  const session = await it.session();
  const turn = await it.turn(session, plan);
  let restarts = 0;
  for (; turn.frames.at(-1)?.type !== 'turn.done'; restarts++) {
    await it.fault(async () => expect(await worker.stop()).toBe(0));
    await worker.start();
    [worker, other] = [other, worker];
    if (process.env['LONG']) await sleep(5_000);
  }
  expect(restarts).toBeGreaterThan(rounds);
  expect(await turn.done).toMatchObject(DONE);
  const outcomes = Object.values(await it.outcomes(session));
  expect(outcomes).toEqual(Array.from({ length: rounds * 3 }, () => 'succeeded'));
});
