import { afterEach, expect, test, vi } from 'vitest';
import { timeOf } from '../core/ids.ts';
import { newId } from './new-id.ts';

afterEach(() => void vi.restoreAllMocks());

test('an id contains its time of creation and reveals nothing about the next one, independently of Math.random', () => {
  vi.spyOn(Math, 'random').mockReturnValue(0.5);
  const now = Date.parse('2026-11-22T12:00:00.000Z');
  const ids = Array.from({ length: 2_000 }, () => newId('turn', now));
  expect(new Set(ids.map(timeOf))).toEqual(new Set([now]));
  expect(new Set(ids).size).toBe(2_000);
  // Each of the 16 random positions takes all of the 32 letters, and ids of one millisecond are not in order.
  for (let place = 15; place < 31; place++) expect(new Set(ids.map((id) => id.charAt(place))).size).toBe(32);
  expect(ids).not.toEqual(ids.toSorted());
});
