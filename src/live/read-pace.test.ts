import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ReadPace } from './read-pace.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** How many reads there are within so many milliseconds. */
async function readsIn(ms: number, reads: { count: number }): Promise<number> {
  const before = reads.count;
  await vi.advanceTimersByTimeAsync(ms);
  return reads.count - before;
}

/** Reads as the tail does, but each read ends at once. */
function readForEver(stop: AbortSignal): { pace: ReadPace; reads: { count: number }; ended: Promise<unknown> } {
  const pace = new ReadPace(stop);
  const reads = { count: 0 };
  const run = async (): Promise<never> => {
    for (;;) {
      await pace.next();
      reads.count += 1;
    }
  };
  return { pace, reads, ended: run().catch((error: unknown) => error) };
}

test('without hints the history is read about once in a second', async () => {
  const stop = new AbortController();
  const { reads, ended } = readForEver(stop.signal);
  expect(await readsIn(10_000, reads)).toBe(9);
  stop.abort();
  await ended;
});

test('a hint is followed by some reads, and then by none until the next hint', async () => {
  const stop = new AbortController();
  const { pace, reads, ended } = readForEver(stop.signal);
  await vi.advanceTimersByTimeAsync(100);
  pace.hint();
  expect(await readsIn(15, reads)).toBe(1);
  expect(await readsIn(85, reads)).toBeGreaterThan(1);
  expect(await readsIn(800, reads)).toBe(0);
  pace.hint();
  expect(await readsIn(15, reads)).toBe(1);
  stop.abort();
  await ended;
});

test('a reader that stops does not wait any longer', async () => {
  const stop = new AbortController();
  const { ended } = readForEver(stop.signal);
  await vi.advanceTimersByTimeAsync(100);
  stop.abort();
  expect(await ended).toMatchObject({ name: 'AbortError' });
  expect(vi.getTimerCount()).toBe(0);
});
