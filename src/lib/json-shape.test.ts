import { expect, test } from 'vitest';
import { jsonShape } from './json-shape.ts';

test.each([
  ['', 0, 1],
  ['7', 0, 1],
  ['{}', 1, 2],
  ['[1, 2, [3]]', 2, 5],
  [`{"a": {"b": [1, {}]}}`, 4, 6],
  [String.raw`["[{\"[[", "\\", []]`, 2, 5],
  ['[[[', 3, 4],
])('%s', (text, depth, values) => {
  expect(jsonShape(text)).toEqual({ depth, values });
});
