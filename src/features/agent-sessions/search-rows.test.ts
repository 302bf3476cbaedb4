import { expect, test } from 'vitest';
import { searchRows, type PageOf } from './search-rows.ts';

test('a search reads all rows in batches, and counts those beyond its page', async () => {
  const all = Array.from({ length: 1_201 }, (_, i) => i);
  const batches: PageOf[] = [];
  const load = async (batch: PageOf) => {
    batches.push(batch);
    return Promise.resolve(all.slice(batch.offset, batch.offset + batch.limit));
  };
  const even = (i: number) => i % 2 === 0;
  expect(await searchRows({ offset: 299, limit: 2 }, load, even)).toEqual({ rows: [598, 600], total: 601 });
  expect(Math.max(...batches.map(({ limit }) => limit))).toBeLessThan(all.length);
  expect(await searchRows({ offset: 700, limit: 2 }, load, even)).toEqual({ rows: [], total: 601 });
  expect(await searchRows({ offset: 0, limit: 2 }, load, () => false)).toEqual({ rows: [], total: 0 });
});
