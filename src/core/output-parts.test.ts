import { expect, test } from 'vitest';
import { appendPart, lengthOf, partsAfter, type OutputPart } from './output-parts.ts';

const out = (text: string): OutputPart => ({ channel: 'stdout', text });
const err = (text: string): OutputPart => ({ channel: 'stderr', text });

test('parts of the same channel that follow each other are one part', () => {
  const parts: OutputPart[] = [];
  for (const part of [out('a'), out('b'), err('c'), out('d'), out('e')]) appendPart(parts, part);
  expect(parts).toEqual([out('ab'), err('c'), out('de')]);
  expect(lengthOf(parts)).toBe(5);
});

test('the rest of an output begins after so many characters, within a part or between two', () => {
  const parts = [out('ab'), err('c'), out('de')];
  expect(partsAfter(parts, 0)).toEqual(parts);
  expect(partsAfter(parts, 1)).toEqual([out('b'), err('c'), out('de')]);
  expect(partsAfter(parts, 2)).toEqual([err('c'), out('de')]);
  expect(partsAfter(parts, 4)).toEqual([out('e')]);
  expect(partsAfter(parts, 5)).toEqual([]);
  expect(partsAfter(parts, 9)).toEqual([]);
});
