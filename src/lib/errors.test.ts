import { expect, test } from 'vitest';
import { causesOf } from './errors.ts';

test('the causes of an error, the outermost first', () => {
  const root = new Error('connect');
  const middle = new Error('socket', { cause: root });
  const outer = new TypeError('fetch failed', { cause: middle });
  expect(causesOf(outer)).toEqual([outer, middle, root]);
});

test('one of the errors of several addresses stands for all', () => {
  const [first, second] = [new Error('connect ::1'), new Error('connect 127.0.0.1')];
  const outer = new TypeError('fetch failed', { cause: new AggregateError([first, second]) });
  expect(causesOf(outer)).toEqual([outer, first]);
});

test('causes without an end', () => {
  const cyclic = new Error('cyclic');
  cyclic.cause = cyclic;
  expect(causesOf(cyclic)).toHaveLength(10);
});

test.each(['a text', null])('%j is its own only cause', (value) => {
  expect(causesOf(value)).toEqual([value]);
});
