import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { wordsOf } from './support/plan.ts';
import { World } from './support/world.ts';

/** Row 15: Redis, which carries text as it is written, is emptied, killed and suspended while models respond. */

const TEXT = Array.from({ length: 40 }, (_, i) => `word${i}`).join(' ');
const WORDS = wordsOf(TEXT).length;

let it: World;
beforeAll(async () => {
  it = await World.start({ apis: 2, workers: 2 });
});
afterAll(() => it.checkAndStop());

type Fault = { name: string; begin: () => unknown; end?: () => unknown; ms?: number };

const FAULTS: Fault[] = [
  { name: 'is flushed, and its connections are cut', begin: () => it.redis.flush() },
  { name: 'is killed and starts again, empty', begin: () => it.redis.down(), end: () => it.redis.up(), ms: 1_500 },
  // A connection without any data for 10 s is closed.
  { name: 'hangs', begin: () => it.redis.hang(), end: () => it.redis.goOn(), ms: process.env['LONG'] ? 15_000 : 1_500 },
];

test.each(FAULTS)('Redis $name: readers get the text of the outage before the message ends', async (fault) => {
  const tools = ['look', 'pay'].map((name) => ({ name }));
  const plan = () => it.plan({ say: TEXT, pauseMs: 50, hold: WORDS, shuffles: true, tools }, { say: 'And on.' });
  const plans = [plan(), plan(), plan()];
  const turns = await Promise.all(plans.map(async (one) => it.turn(await it.session(), one)));
  await Promise.all(turns.map((turn) => turn.words(5)));

  await it.fault(fault.begin);
  // A reader that connects now gets what is durable; a turn that starts now runs.
  const late = it.recorder.follow(turns[0]!.sessionId, turns[0]!.turnId);
  const begun = it.turn(await it.session(), it.plan({ say: TEXT, tools: [{ name: 'pay' }] }, { say: 'Paid.' }));
  if (fault.ms) await sleep(fault.ms);
  await fault.end?.();

  // The models have not finished: all of this comes over Redis.
  for (const turn of [...turns, late]) await turn.words(WORDS);
  expect(turns.some((turn) => turn.frames.at(-1)?.type === 'turn.done')).toBe(false);
  for (const one of plans) it.planned.goOn(one);
  for (const turn of [...turns, late]) {
    expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'And on.' } });
    expect(turn.connections, 'connections that its reader needed').toBe(1);
  }
  expect(await (await begun).done).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
});
