import { setImmediate as nextTurn } from 'node:timers/promises';

/** How long items are mapped before other work gets its turn, in milliseconds. */
const MAX_BLOCKED_MS = 10;

/** Maps many items, each of which takes little time, without blocking other work for as long as all of them take. */
export async function mapInTurns<T, Result>(items: Iterable<T>, map: (item: T) => Result): Promise<Result[]> {
  const results: Result[] = [];
  let since = performance.now();
  for (const item of items) {
    results.push(map(item));
    if (performance.now() - since < MAX_BLOCKED_MS) continue;
    await nextTurn();
    since = performance.now();
  }
  return results;
}
