import { proxyActivities } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';

/** The fastest possible activity, so that the server is what is measured. */
const { doNothing } = proxyActivities<Pick<Activities, 'doNothing'>>({ startToCloseTimeout: '10 seconds' });

/**
 * A server with a rate limit allows a burst of one second's tasks after it was idle: 20 by default. A round uses two of
 * them, or one since 1.32, while a round of 30 ms lets 0.6 come back.
 */
const BURST = 60;
const ROUNDS = 7;

/** Measures how long the server takes from one step of a workflow to the next: the median in milliseconds. */
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
