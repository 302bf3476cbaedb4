import { expect, test, vi } from 'vitest';
import { memoized } from './memoized.ts';

test('the result for an object is computed once', () => {
  const compute = vi.fn((words: string[]) => words.length);
  const count = memoized(compute);
  const [none, two] = [[], ['one', 'two']];
  expect([count(none), count(two), count(none), count(two)]).toEqual([0, 2, 0, 2]);
  expect(compute).toHaveBeenCalledTimes(2);
  expect(count(['one', 'two'])).toBe(2);
  expect(compute).toHaveBeenCalledTimes(3);
});
