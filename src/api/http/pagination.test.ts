import { expect, test } from 'vitest';
import { Page } from './pagination.ts';

test('a page is limited by items and by length, but has at least one item', () => {
  const few = new Page<number>(2);
  expect([few.add(1), few.add(2), few.add(3)]).toEqual([true, true, false]);
  expect(few.items).toEqual([1, 2]);
  const large = new Page<string>(10);
  expect([large.add('x'.repeat(9_000_000)), large.add('y')]).toEqual([true, false]);
  const medium = new Page<string>(10);
  expect([1, 2, 3].map(() => medium.add('z'.repeat(3_000_000)))).toEqual([true, true, false]);
});
