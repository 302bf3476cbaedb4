import { setTimeout as sleep } from 'node:timers/promises';

/** What `work` comes to, or an error if that takes longer than `ms` milliseconds; whatever comes later is ignored. */
export async function inTime<T>(ms: number, work: Promise<T>, tooLate = `no answer within ${ms / 1000} s`): Promise<T> {
  const timer = new AbortController();
  const late = sleep(ms, undefined, { signal: timer.signal, ref: false }).then(() => {
    throw new Error(tooLate);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    timer.abort();
    // Whatever comes now comes too late.
    late.catch(() => undefined);
    work.catch(() => undefined);
  }
}
