import { expect, test, vi } from 'vitest';
import { PatientFlight } from './patient-flight.ts';

const signal = new AbortController().signal;

function start({ firstWaitMs = 20 }: { firstWaitMs?: number } = {}) {
  const clock = { now: 0 };
  const flight = new PatientFlight<string>('is still starting', { firstWaitMs, now: () => clock.now });
  const attempts: PromiseWithResolvers<string>[] = [];
  const attempt = vi.fn<() => Promise<string>>(() => {
    const made = Promise.withResolvers<string>();
    attempts.push(made);
    return made.promise;
  });
  return { flight, clock, attempts, attempt, run: () => flight.run(attempt, signal) };
}

test('only the first callers wait, for a limited time, and the attempt continues', async () => {
  const { clock, attempts, attempt, run } = start();
  await expect(run()).rejects.toThrow('is still starting');
  clock.now = 20;
  // The timer of a wait would not fire.
  vi.useFakeTimers();
  await expect(run()).rejects.toThrow('is still starting');
  vi.useRealTimers();
  expect(attempt).toHaveBeenCalledTimes(1);
  attempts[0]?.resolve('open');
  // Even now: the answer is noted after this.
  await expect(run()).rejects.toThrow('is still starting');
  // It has answered: the next attempt is waited for again.
  const next = run();
  attempts[1]?.resolve('open again');
  expect(await next).toBe('open again');
});

test('after a slow failure nobody waits for the next attempt, which is made all the same', async () => {
  const { clock, attempts, run } = start({ firstWaitMs: 30_000 });
  const first = run();
  clock.now = 10_000;
  attempts[0]?.reject(new Error('did not answer within 10 s'));
  await expect(first).rejects.toThrow('did not answer within 10 s');
  clock.now = 60_000;
  await expect(run()).rejects.toThrow('did not answer within 10 s');
  expect(attempts).toHaveLength(2);
  attempts[1]?.resolve('open');
  await vi.waitFor(async () => {
    const again = run();
    attempts[2]?.resolve('open again');
    expect(await again).toBe('open again');
  });
});

test('a server that fails at once is waited for each time', async () => {
  const { clock, attempts, run } = start({ firstWaitMs: 30_000 });
  const first = run();
  attempts[0]?.reject(new Error('refuses connections'));
  await expect(first).rejects.toThrow('refuses connections');
  clock.now = 100_000;
  const second = run();
  attempts[1]?.resolve('open');
  expect(await second).toBe('open');
});

test('the wait begins with the first caller, not with an attempt that was begun early', async () => {
  const { flight, clock, attempts, attempt, run } = start({ firstWaitMs: 30_000 });
  const begun = flight.begin(attempt);
  clock.now = 100_000;
  const waiting = run();
  attempts[0]?.resolve('open');
  expect(await Promise.all([begun, waiting])).toEqual(['open', 'open']);
});

test('a caller that is aborted does not wait', async () => {
  const { flight, attempt } = start({ firstWaitMs: Infinity });
  const abort = new AbortController();
  const waiting = flight.run(attempt, abort.signal);
  abort.abort(new Error('enough'));
  await expect(waiting).rejects.toThrow('enough');
});
