import { expect, test } from 'vitest';
import { nearestName } from './nearest-name.ts';

test.each([
  ['a letter that is missing', 'EVERTURN_PRT', 'EVERTURN_PORT'],
  ['a letter too many', 'EVERTURN_HOOST', 'EVERTURN_HOST'],
  ['a wrong letter', 'EVERTURN_DATE', 'EVERTURN_DATA'],
  ['two letters that are swapped', 'EVERTURN_HSOT', 'EVERTURN_HOST'],
])('a name with %s is near the one that was meant', (_, name, meant) => {
  expect(nearestName(name, ['EVERTURN_DATA', 'EVERTURN_HOST', 'EVERTURN_PORT'])).toBe(meant);
});

test('a name is near if at most half of a short one differs, and a third of a long one', () => {
  expect(nearestName('tols', ['tool'])).toBe('tool');
  expect(nearestName('abc', ['axx'])).toBeUndefined();
  expect(nearestName('ab', ['abcde'])).toBeUndefined();
  expect(nearestName('abcdefgh', ['abcdexxx'])).toBe('abcdexxx');
  expect(nearestName('abcdefgh', ['abcdxxxx'])).toBeUndefined();
  expect(nearestName('abcdefghijkl', ['abcdefghxxxx'])).toBe('abcdefghxxxx');
  expect(nearestName('abcdefghijkl', ['abcdefgxxxxx'])).toBeUndefined();
});

test('a swap of two letters is one difference', () => {
  expect(nearestName('acb', ['abc'])).toBe('abc');
  expect(nearestName('xyz', ['abc'])).toBeUndefined();
});

test('the nearest of several names is found, and the first of those that are equally near', () => {
  expect(nearestName('match', ['matched', 'matchy', 'batch'])).toBe('matchy');
  expect(nearestName('anything', [])).toBeUndefined();
});

test('a name of any length is compared in no time with short ones', () => {
  expect(nearestName('x'.repeat(50_000_000), ['model', 'instructions'])).toBeUndefined();
});
