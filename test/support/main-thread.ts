import { setTimeout as sleep } from 'node:timers/promises';

/**
 * How long foreign input may block a thread, in milliseconds of processor time on a machine of usual speed: heartbeats
 * and all other sessions wait meanwhile. What is tested takes 20 to 80; without bounds it takes seconds.
 */
export const MAX_STRETCH_MS = 250;

/** How long a machine of usual speed takes for `knownWork`, in milliseconds of processor time. */
const KNOWN_WORK_MS = 25;
const KNOWN_TEXT = JSON.stringify(Array.from({ length: 40_000 }, (_, i) => ({ [`k${i}`]: 'x' })));

/** Work of the kind that is measured. Returns its processor time in milliseconds. */
function knownWork(): number {
  const before = process.threadCpuUsage();
  JSON.stringify(JSON.parse(KNOWN_TEXT));
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

/** How many times as long as on a machine of usual speed work takes here and now, at least 1. */
function slowness(): number {
  return Math.max(1, Math.min(knownWork(), knownWork(), knownWork()) / KNOWN_WORK_MS);
}

/**
 * Measures the processor time that this thread spends between two runs of a 1 ms timer: how long it blocks the event
 * loop, in milliseconds of a machine of usual speed. The load of the rest of the machine is not counted.
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
      const found = longest / slowness();
      longest = 0;
      last = process.threadCpuUsage();
      return found;
    },
    stop: () => clearInterval(looks),
  };
}

/** The longest time for which this thread blocks the event loop while `work` runs, in the unit of `MAX_STRETCH_MS`. */
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
