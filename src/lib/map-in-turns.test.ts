import { expect, test } from 'vitest';
import { mapInTurns } from './map-in-turns.ts';

test('other work is done while many items are mapped, in their order', async () => {
  let others = 0;
  setImmediate(() => (others += 1));
  const busy = (item: number): [item: number, others: number] => {
    const end = performance.now() + 2;
    while (performance.now() < end);
    return [item, others];
  };
  const items = Array.from({ length: 20 }, (_, i) => i);
  const mapped = await mapInTurns(items, busy);
  expect(mapped.map(([item]) => item)).toEqual(items);
  expect([mapped[0]?.[1], mapped.at(-1)?.[1]]).toEqual([0, 1]);
});
