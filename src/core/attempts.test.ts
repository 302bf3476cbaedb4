import { expect, test } from 'vitest';
import { attemptsOf, attemptsSoFar, boundedAttempts, retryingOf, type Attempt } from './attempts.ts';

/** So many seconds after the activity was scheduled. */
const at = (seconds: number): string => new Date(Date.UTC(2026, 10, 28, 8, 0, seconds)).toISOString();

const numbered = (count: number): Attempt[] => Array.from({ length: count }, (_, i) => ({ number: i + 1 }));
const numbersOf = (attempts: Attempt[]) => attempts.map(({ number }) => number);

test('of too many attempts the first one and the last ones are kept', () => {
  expect(boundedAttempts([])).toEqual([]);
  expect(numbersOf(boundedAttempts(numbered(10)))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  expect(numbersOf(boundedAttempts(numbered(12)))).toEqual([1, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
});

test('the attempts so far are those that were reported, and the one that has begun', () => {
  const failed: Attempt = { number: 1, startedAt: at(0), outcome: 'failed', failure: 'stalled' };
  const begun = { number: 2, at: at(3), worker: 'w', before: { isLost: false, failure: 'stalled' } };
  expect(attemptsSoFar(begun, [failed])).toStrictEqual([failed, { number: 2, startedAt: at(3), worker: 'w' }]);
  const own: Attempt = { number: 2, provider: 'openai' };
  expect(attemptsSoFar({ number: 2 }, [failed, own])).toStrictEqual([failed, own]);
  // Attempts after the given one are left out.
  expect(attemptsSoFar({ number: 1 }, [{ number: 1 }, own])).toStrictEqual([{ number: 1 }]);
});

test('an attempt that was reported without its end is lost', () => {
  const [lost] = attemptsSoFar({ number: 2 }, [{ number: 1, startedAt: at(0) }]);
  expect(lost).toStrictEqual({ number: 1, startedAt: at(0), outcome: 'lost' });
});

test('an attempt that was not reported has what the history says of its end', () => {
  const before = (one: { isLost: boolean; failure?: string }, reported: Attempt[] = []) =>
    attemptsSoFar({ number: 3, before: one }, reported).slice(0, -1);
  expect(before({ isLost: true, failure: 'TimeoutFailure' })).toStrictEqual([{ number: 2, outcome: 'lost' }]);
  expect(before({ isLost: false, failure: 'stalled' })).toStrictEqual([
    { number: 2, outcome: 'failed', failure: 'stalled' },
  ]);
  expect(before({ isLost: false })).toStrictEqual([{ number: 2, outcome: 'failed' }]);
  const first: Attempt = { number: 1, outcome: 'failed' };
  expect(before({ isLost: true }, [first])).toStrictEqual([first, { number: 2, outcome: 'lost' }]);
  const second: Attempt = { number: 2, outcome: 'taken_over' };
  expect(before({ isLost: true }, [first, second])).toStrictEqual([first, second]);
});

test('the last attempt of an activity ends with it, and has the failure of the activity unless it has its own', () => {
  const begun = { number: 2, at: at(3), before: { isLost: true } };
  const lost = { number: 1, outcome: 'lost' };
  const last = { number: 2, startedAt: at(3), endedAt: at(5) };
  expect(attemptsOf(begun, { outcome: 'completed' }, at(5))).toStrictEqual([lost, { ...last, outcome: 'completed' }]);
  const failed = { outcome: 'failed' as const, failure: 'ActivityFailure' };
  expect(attemptsOf(begun, failed, at(5))).toEqual([lost, { ...last, ...failed }]);
  const reported: Attempt[] = [{ number: 2, failure: 'stalled' }];
  expect(attemptsOf(begun, { ...failed, reported }, at(5))[1]).toEqual({ ...last, ...failed, failure: 'stalled' });
});

test('an activity that no worker has begun has the attempts that were reported', () => {
  const reported: Attempt[] = [{ number: 1, outcome: 'completed' }];
  expect(attemptsOf(undefined, { outcome: 'cancelled', reported }, at(5))).toEqual(reported);
  expect(attemptsOf(undefined, { outcome: 'cancelled' }, at(5))).toEqual([]);
});

test('an activity that was not repeated is not retrying', () => {
  expect(retryingOf({ scheduledAt: at(0), attempts: [] })).toBeUndefined();
  expect(retryingOf({ scheduledAt: at(0), attempts: [{ number: 1, outcome: 'failed' }] })).toBeUndefined();
});

test('an activity is retrying since the end of its first attempt, or its beginning, or since it was scheduled', () => {
  const sinceOf = (first: Partial<Attempt>) =>
    retryingOf({ scheduledAt: at(0), attempts: [{ number: 1, ...first }, { number: 2 }, { number: 3 }] })?.since;
  expect(sinceOf({ startedAt: at(1), endedAt: at(2) })).toBe(at(2));
  expect(sinceOf({ startedAt: at(1) })).toBe(at(1));
  expect(sinceOf({})).toBe(at(0));
});

test.each<[Partial<Attempt>, string]>([
  [{ outcome: 'lost', reason: 'no' }, 'its worker was lost'],
  [{ outcome: 'taken_over', reason: 'no' }, 'its worker stopped'],
  [{ outcome: 'failed', reason: 'no capacity', failure: 'overloaded' }, 'no capacity'],
  [{ outcome: 'failed', failure: 'overloaded' }, 'overloaded'],
  [{ outcome: 'failed' }, 'it failed'],
])('the last attempt that has ended says why: %o', (failed, reason) => {
  const retrying = (more: Partial<Attempt>) =>
    retryingOf({
      scheduledAt: at(0),
      attempts: [
        { number: 1, ...failed, ...more },
        { number: 2, provider: 'next' },
      ],
    });
  expect(retrying({})).toStrictEqual({ since: at(0), reason });
  expect(retrying({ provider: 'openai', server: 'crm' })).toMatchObject({ provider: 'openai', reason });
  expect(retrying({ server: 'crm' })).toMatchObject({ provider: 'crm' });
});
