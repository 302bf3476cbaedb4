import { setTimeout as sleep } from 'node:timers/promises';

/**
 * The most milliseconds of processor time that this thread takes between two looks at its event loop, at least one of
 * which falls into each turn that takes longer than 1 ms, while `work` runs. Whatever else the machine does is not counted.
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
    // What the work has left to the turns that follow it.
    await sleep(1);
    look();
  } finally {
    clearInterval(looks);
  }
  return longest;
}
