import { proxyActivities } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';

/** As quick as an activity can be: what is measured is the server. */
const { doNothing } = proxyActivities<Pick<Activities, 'doNothing'>>({ startToCloseTimeout: '10 seconds' });

/** A server that limits its rate has saved up a second's worth of it while it was idle: 20 tasks as it comes. */
const BURST = 22;
const ROUNDS = 7;

/** How long the server takes from one step of a workflow to the next, in milliseconds: the median of a few. */
export async function dispatchProbe(): Promise<number> {
  for (let round = 0; round < BURST; round++) await doNothing();
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const before = Date.now();
    await doNothing();
    times.push(Date.now() - before);
  }
  return times.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)] ?? 0;
}
