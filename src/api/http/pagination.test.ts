import { expect, test } from 'vitest';
import { z } from 'zod';
import { pageFrom, pageOfRows, positionOf } from './pagination.ts';

test('a page is limited by items and by length, but has at least one item', async () => {
  const page = async (lengths: number[], limit: number) => {
    let read = 0;
    const placed = (length: number, at: number) => ({ item: 'x'.repeat(length), position: { at: (read = at) } });
    const { data, pagination } = await pageFrom(lengths.values().map(placed), limit);
    const next = positionOf(z.object({ at: z.int() }), pagination.next_page_token ?? undefined)?.at;
    return { has: data.length, next, read };
  };
  expect(await page([1, 1, 1, 1], 2)).toEqual({ has: 2, next: 2, read: 2 });
  expect(await page([1, 1], 2)).toEqual({ has: 2, next: undefined, read: 1 });
  expect(await page([9_000_000, 1, 1], 10)).toEqual({ has: 1, next: 1, read: 1 });
  expect(await page([3_000_000, 3_000_000, 3_000_000], 10)).toEqual({ has: 2, next: 2, read: 2 });
});

test('a page with items ends after what it has left out, and one without only after four times that', async () => {
  const item = { item: 'x' };
  const other = { item: 'y'.repeat(3_900_000), isLeftOut: true };
  const times = (count: number, one: object) => Array.from({ length: count }, () => one);
  const page = async (listing: object[], limit = 10) => {
    const placed = listing.map((one, at) => ({ item: '', ...one, position: { at } }));
    const { data, pagination } = await pageFrom(placed, limit);
    const next = positionOf(z.object({ at: z.int() }), pagination.next_page_token ?? undefined)?.at;
    return { has: data.length, next };
  };
  expect(await page([item, other, other, item])).toEqual({ has: 2, next: undefined });
  expect(await page([item, other, other, other, item])).toEqual({ has: 1, next: 3 });
  expect(await page([...times(8, other), item])).toEqual({ has: 1, next: undefined });
  expect(await page([...times(9, other), item])).toEqual({ has: 0, next: 8 });
  // The next page begins with an item, or there is none.
  expect(await page([item, { ...item, isLeftOut: true }, item], 1)).toEqual({ has: 1, next: 2 });
  expect(await page([item, { ...item, isLeftOut: true }], 1)).toEqual({ has: 1, next: undefined });
  // Each that is left out counts, however short it is.
  expect(await page([item, ...times(4_001, { ...item, isLeftOut: true })])).toEqual({
    has: 1,
    next: 4_001,
  });
});

test('a page token continues its own listing, and no other one', async () => {
  const place = z.object({ list: z.string(), after: z.int() });
  const page = (rows: number[]) =>
    pageOfRows(rows, 2, { toItem: (row) => row * 10, after: (last) => ({ list: 'a', after: last }) });
  const { data, pagination } = await page([1, 2, 3]);
  expect(data).toEqual([10, 20]);
  const token = pagination.next_page_token ?? '';
  expect(positionOf(place, token, { list: 'a' })).toEqual({ list: 'a', after: 2 });
  expect(() => positionOf(place, token, { list: 'b' })).toThrow('does not belong to this listing');
  expect(() => positionOf(place, `${token}AA`, { list: 'a' })).toThrow('does not belong to this listing');
  expect(positionOf(place, undefined)).toBe(undefined);
  expect((await page([1, 2])).pagination.next_page_token).toBe(null);
});
