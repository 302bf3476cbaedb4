import { expect, test } from 'vitest';
import { pick } from './pick.ts';

test('the named fields that an object has are taken, and no others', () => {
  const from: { a: number; b: string; c?: true; d?: true } = { a: 0, b: '', c: true };
  const picked = pick(from, 'a', 'b', 'd');
  expect(picked).toStrictEqual({ a: 0, b: '' });
});
