import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { startHousekeeping } from './sweep.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

type Options = Parameters<typeof startHousekeeping>[0];

/** What a sweep needs that fails at `forget` of idempotency keys or, after that, when turns are listed. */
function failing(forget: () => Promise<void>, calls: string[] = []): Options {
  const called = (name: string) => () => Promise.resolve(void calls.push(name));
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that a failing sweep uses
  return {
    config: { turnSeconds: 1 },
    catalog: {
      idleTimeouts: { end: called('end idle times') },
      deliveries: { forget: called('forget deliveries') },
      mcpSignIns: { unnotified: () => Promise.resolve([]), forget: called('forget sign-ins') },
      idempotency: { forget },
      storedBytes: { addChanges: () => Promise.resolve() },
    },
    client: {
      workflow: {
        list: () => {
          calls.push('list turns');
          throw new Error('Temporal is unavailable');
        },
      },
    },
    deliverer: { wake: called('wake the deliverer') },
    log: pino({ level: 'silent' }),
  } as unknown as Options;
}

test('while Temporal is unavailable sessions end by their idle timeouts, and lost hints of deliveries are made up for', async () => {
  const calls: string[] = [];
  const housekeeping = startHousekeeping(failing(() => Promise.resolve(), calls));
  await housekeeping.stop();
  expect(calls).toEqual(['end idle times', 'forget sign-ins', 'wake the deliverer', 'forget deliveries', 'list turns']);
});

test('slow sweeps do not overlap, and no sweep starts after the stop', async () => {
  const sweeps: PromiseWithResolvers<void>[] = [];
  const options = failing(() => {
    const sweep = Promise.withResolvers<void>();
    sweeps.push(sweep);
    return sweep.promise;
  });
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
