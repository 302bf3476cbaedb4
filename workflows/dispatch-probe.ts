import { proxyActivities } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';

/** The fastest possible activity, so that the server is what is measured. */
const { doNothing } = proxyActivities<Pick<Activities, 'doNothing'>>({ startToCloseTimeout: '10 seconds' });

const ROUNDS = 7;

/**
 * Measures how long the server takes from one step of a workflow to the next: the median in milliseconds, after `burst`
 * steps. The default is that of the probes which older workers have started.
 */
export async function dispatchProbe(burst = 22): Promise<number> {
  for (let round = 0; round < burst; round++) await doNothing();
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const before = Date.now();
    await doNothing();
    times.push(Date.now() - before);
  }
  return times.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)] ?? 0;
}
