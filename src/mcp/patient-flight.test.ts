import { expect, test, vi } from 'vitest';
import { Patience, PatientFlight } from './patient-flight.ts';
import { SignInRequiredError } from './sign-in-required.ts';
import { eventually } from '../../test/support/eventually.ts';

const signal = new AbortController().signal;

function start({ firstWaitMs = 20 }: { firstWaitMs?: number } = {}) {
  const clock = { now: 0 };
  const now = () => clock.now;
  const patience = new Patience({ firstWaitMs, now });
  const another = () => new PatientFlight<string>('is still starting', patience);
  const flight = another();
  const attempts: PromiseWithResolvers<string>[] = [];
  const attempt = vi.fn<() => Promise<string>>(() => {
    const made = Promise.withResolvers<string>();
    attempts.push(made);
    return made.promise;
  });
  return { flight, another, clock, attempts, attempt, run: () => flight.run(attempt, signal) };
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

test('after a slow failure no caller waits for the next attempt, which is made all the same', async () => {
  const { clock, attempts, run } = start({ firstWaitMs: 30_000 });
  const first = run();
  clock.now = 10_000;
  attempts[0]?.reject(new Error('did not answer within 10 s'));
  await expect(first).rejects.toThrow('did not answer within 10 s');
  clock.now = 60_000;
  await expect(run()).rejects.toThrow('did not answer within 10 s');
  expect(attempts).toHaveLength(2);
  attempts[1]?.resolve('open');
  await eventually(async () => {
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

test('a server that has never answered is tried once at a time, however many connections are to be opened', async () => {
  const { another, attempts, attempt, run } = start({ firstWaitMs: 30_000 });
  const first = run();
  const others = [another().run(attempt, signal), another().run(attempt, signal)];
  expect(attempts).toHaveLength(1);
  attempts[0]?.resolve('open');
  expect(await first).toBe('open');
  await eventually(() => expect(attempts).toHaveLength(3));
  attempts[1]?.resolve('second');
  attempts[2]?.resolve('third');
  expect(await Promise.all(others)).toEqual(['second', 'third']);
});

test('a server for which callers have waited is waited for by no other connection, until it has answered', async () => {
  const { another, clock, attempts, attempt, run } = start({ firstWaitMs: 30_000 });
  const first = run();
  clock.now = 30_000;
  await expect(another().run(attempt, signal)).rejects.toThrow('is still starting');
  attempts[0]?.resolve('open');
  await first;
  const next = another().run(attempt, signal);
  attempts[1]?.resolve('open again');
  expect(await next).toBe('open again');
});

test('where the first attempt has failed, another connection makes the next one', async () => {
  const { another, attempts, attempt, run } = start({ firstWaitMs: 30_000 });
  const first = run();
  const other = another().run(attempt, signal);
  attempts[0]?.reject(new Error('ended with exit code 1'));
  await expect(first).rejects.toThrow('ended with exit code 1');
  await eventually(() => expect(attempts).toHaveLength(2));
  attempts[1]?.resolve('open');
  expect(await other).toBe('open');
});

test('a server that requires a sign-in has answered, however late', async () => {
  const { another, clock, attempts, attempt, run } = start({ firstWaitMs: 30_000 });
  const first = run();
  clock.now = 10_000;
  attempts[0]?.reject(new SignInRequiredError());
  await expect(first).rejects.toThrow('requires the user to sign in');
  const signedIn = another().run(attempt, signal);
  attempts[1]?.resolve('open');
  expect(await signedIn).toBe('open');
});
