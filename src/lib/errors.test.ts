import { expect, test } from 'vitest';
import { causesOf, ProvisionError } from './errors.ts';

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

test('an error has the name of its class, in its stack as well, and so have those of derived classes', () => {
  class Derived extends ProvisionError {
    readonly field = 'set after the stack';
  }
  const error = new Derived('why');
  expect(error.name).toBe('Derived');
  expect(String(error)).toBe('Derived: why');
  expect(error.stack).toMatch(/^Derived: why\n/);
  expect(new ProvisionError('why').stack).toMatch(/^ProvisionError: why\n/);
});
