import { expect, test, vi } from 'vitest';
import { SingleFlight } from './single-flight.ts';

test('concurrent callers share one attempt, and later callers make another', async () => {
  const shared = new SingleFlight<number>(() => 0);
  const first = Promise.withResolvers<number>();
  const attempt = vi.fn<() => Promise<number>>(() => first.promise);
  const callers = [shared.run(attempt), shared.run(attempt)];
  expect(shared.isIdle).toBe(false);
  first.resolve(1);
  expect(await Promise.all(callers)).toEqual([1, 1]);
  expect(shared.isIdle).toBe(true);
  expect(await shared.run(() => Promise.resolve(2))).toBe(2);
  expect(attempt).toHaveBeenCalledTimes(1);
});

test.each([
  { tookMs: 5, rememberedMs: 1_000 },
  { tookMs: 2_000, rememberedMs: 6_000 },
  { tookMs: 20_000, rememberedMs: 30_000 },
])('a failure after $tookMs ms is remembered for $rememberedMs ms', async ({ tookMs, rememberedMs }) => {
  let now = 100_000;
  const shared = new SingleFlight<number>(() => now);
  const attempt = vi.fn<() => Promise<number>>(() => {
    now += tookMs;
    return Promise.reject(new Error('down'));
  });
  await expect(shared.run(attempt)).rejects.toThrow('down');
  now += rememberedMs - 1;
  await expect(shared.run(attempt)).rejects.toThrow('down');
  expect(attempt).toHaveBeenCalledTimes(1);
  expect(shared.isIdle).toBe(false);
  now += 1;
  expect(shared.isIdle).toBe(true);
  expect(await shared.run(() => Promise.resolve(1))).toBe(1);
  expect(await shared.run(() => Promise.resolve(2))).toBe(2);
});
