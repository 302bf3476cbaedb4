import { afterAll, beforeAll, expect, test } from 'vitest';
import { startAllInOne } from './all-in-one.ts';
import { startBench, type Bench } from './bench.ts';
import { measureLoop } from './measurements/loop.ts';
import { measureSteps } from './measurements/steps.ts';
import { measureThroughput } from './measurements/throughput.ts';
import { prepare } from './setting.ts';

/**
 * Bounds on the cost of a turn: ratios within this run, wide enough for a busy machine. `npm run bench` measures the same
 * with more repetitions.
 */

/** 0.8 on a quiet machine. When each call had an activity of its own, 3.1 once with a load of 20 on 2 cores. */
const STEP_RATIO = 4;

/** With 5 steps, 1.4 at most with a load of 20 on 2 cores. At 2 a step costs as much as a real model and its tool. */
const LOOP_RATIO = 2;

/** 0.40 on a quiet machine, 0.27 with a load of 28 on 2 cores. */
const TURNS_RATIO = 0.1;

/** Of Everturn beside Temporal: 0.8 on a quiet machine, 0.96 at most with a load of 25 on 2 cores. */
const PROCESSOR_TIME_RATIO = 1.2;

let bench: Bench;
let end: (() => Promise<void>) | undefined;
beforeAll(async () => {
  const prepared = await prepare(() => undefined);
  end = prepared.end;
  bench = await startBench(prepared.setting, startAllInOne);
});
afterAll(() => end?.());

test('a step costs little more than two empty activities', async () => {
  const { step_ratio: ratio } = await measureSteps(bench, { steps: 20, rounds: 3 });
  expect(ratio).toBeLessThan(STEP_RATIO);
});

test('a turn takes little longer than a plain loop with the same model and tool', async () => {
  expect(await measureLoop(bench, { steps: 5, rounds: 3 })).toBeLessThan(LOOP_RATIO);
});

test('turns that run at once cost little more than the work of Temporal', async () => {
  const result = await measureThroughput(bench, { atOnce: 16, count: 32, rounds: 3 });
  const { turnsPerSecond, baseline, processorTime } = result;
  expect(turnsPerSecond / baseline).toBeGreaterThan(TURNS_RATIO);
  // Only Linux provides it.
  if (processorTime) expect(processorTime.ours / processorTime.temporal).toBeLessThan(PROCESSOR_TIME_RATIO);
});
