import { expect, test } from 'vitest';
import { pythonNames } from './python-names.ts';

test.each([
  ['add', 'add'],
  ['Create-Order.v2', 'create_order_v2'],
  ['2fa', '_2fa'],
  ['import', 'import_'],
  ['None', 'none'],
  ['été', '_t_'],
  ['a/../b\n', 'a____b_'],
  ['__init__', '__init___'],
  ['__path__', '__path___'],
  ['', '_'],
  ['x'.repeat(300), 'x'.repeat(100)],
])('the Python name of %j is %j', (original, name) => {
  expect(pythonNames([original]).get(original)).toBe(name);
});

test('colliding names are numbered in the order of the original names, however they are given', () => {
  const names = new Map([
    ['A-b', 'a_b'],
    ['a-b', 'a_b_2'],
    ['a.b', 'a_b_3'],
    ['a_b_2', 'a_b_2_2'],
  ]);
  expect(pythonNames([...names.keys()])).toEqual(names);
  expect(pythonNames([...names.keys()].reverse())).toEqual(names);
});
