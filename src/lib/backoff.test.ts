import { expect, onTestFinished, test, vi } from 'vitest';
import { backoffMs } from './backoff.ts';

test('pauses double up to their maximum', () => {
  const pauses = [0, 1, 2, 3, 2000].map((attempt) => backoffMs(attempt, { first: 100, max: 500 }));
  expect(pauses).toEqual([100, 200, 400, 500, 500]);
  expect(backoffMs(10, { first: 1 })).toBe(1024);
});

test('jitter shortens a pause by at most its share', () => {
  const random = vi.spyOn(Math, 'random');
  onTestFinished(() => random.mockRestore());
  const shortened = [0, 0.5, 1].map((value) => {
    random.mockReturnValue(value);
    return backoffMs(1, { first: 100, max: 1_000, jitter: 0.5 });
  });
  expect(shortened).toEqual([200, 150, 100]);
});
