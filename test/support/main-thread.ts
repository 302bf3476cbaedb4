import { setTimeout as sleep } from 'node:timers/promises';

/**
 * The longest processor time, in milliseconds, that this thread spends between two runs of a 1 ms timer while `work`
 * runs: how long it blocks the event loop. The load of the rest of the machine is not counted.
 */
export async function longestStretch(work: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let last = process.threadCpuUsage();
  const look = (): void => {
    const { user, system } = process.threadCpuUsage(last);
    longest = Math.max(longest, (user + system) / 1000);
    last = process.threadCpuUsage();
  };
  const looks = setInterval(look, 1);
  try {
    await work();
    // Work that was deferred to the following turns of the event loop.
    await sleep(1);
    look();
  } finally {
    clearInterval(looks);
  }
  return longest;
}
