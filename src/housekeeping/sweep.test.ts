import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { startHousekeeping } from './sweep.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test('slow sweeps do not overlap, and no sweep starts after the stop', async () => {
  const sweeps: PromiseWithResolvers<void>[] = [];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that a failing sweep uses
  const options = {
    config: { turnSeconds: 1 },
    catalog: {
      idempotency: {
        forget: () => {
          const sweep = Promise.withResolvers<void>();
          sweeps.push(sweep);
          return sweep.promise;
        },
      },
    },
    log: pino({ level: 'silent' }),
  } as unknown as Parameters<typeof startHousekeeping>[0];
  const housekeeping = startHousekeeping(options);
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(sweeps.length).toBe(1);
  sweeps[0]?.reject(new Error('the sweep fails here'));
  // A failed sweep is repeated soon.
  await vi.advanceTimersByTimeAsync(15_000);
  expect(sweeps.length).toBe(2);
  sweeps[1]?.reject(new Error('the sweep fails here'));
  await vi.advanceTimersByTimeAsync(15_000);
  expect(sweeps.length).toBe(2);
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(sweeps.length).toBe(3);
  const stopped = housekeeping.stop();
  sweeps[2]?.reject(new Error('the sweep fails here'));
  await stopped;
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(sweeps.length).toBe(3);
});
