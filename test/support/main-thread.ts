import { setTimeout as sleep } from 'node:timers/promises';

/**
 * How long foreign input may block a thread, in milliseconds of processor time: heartbeats and all other sessions wait
 * meanwhile. What is tested takes 20 to 80, and half as much again on a slow machine; without bounds it takes seconds.
 */
export const MAX_STRETCH_MS = 250;

/**
 * Measures the processor time, in milliseconds, that this thread spends between two runs of a 1 ms timer: how long it
 * blocks the event loop. The load of the rest of the machine is not counted.
 */
export function measureStretches(): { longest: () => number; stop: () => void } {
  let longest = 0;
  let last = process.threadCpuUsage();
  const look = (): void => {
    const { user, system } = process.threadCpuUsage(last);
    longest = Math.max(longest, (user + system) / 1000);
    last = process.threadCpuUsage();
  };
  const looks = setInterval(look, 1).unref();
  return {
    /** The longest since it was asked before. */
    longest: () => {
      look();
      const found = longest;
      longest = 0;
      return found;
    },
    stop: () => clearInterval(looks),
  };
}

/** The longest time, in milliseconds of processor time, for which this thread blocks the event loop while `work` runs. */
export async function longestStretch(work: () => Promise<unknown>): Promise<number> {
  const stretches = measureStretches();
  try {
    await work();
    // Work that was deferred to the following turns of the event loop.
    await sleep(1);
    return stretches.longest();
  } finally {
    stretches.stop();
  }
}
