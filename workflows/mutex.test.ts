import { expect, test } from 'vitest';
import { Mutex } from './mutex.ts';

test('functions run one at a time, in their order; one that fails blocks none after it', async () => {
  const mutex = new Mutex();
  const seen: string[] = [];
  const run = (name: string, fails = false) =>
    mutex.run(async () => {
      seen.push(`${name} begins`);
      await Promise.resolve();
      seen.push(`${name} ends`);
      if (fails) throw new Error(name);
      return name;
    });
  expect(await Promise.allSettled([run('a'), run('b', true), run('c')])).toEqual([
    { status: 'fulfilled', value: 'a' },
    { status: 'rejected', reason: new Error('b') },
    { status: 'fulfilled', value: 'c' },
  ]);
  expect(seen).toEqual(['a', 'b', 'c'].flatMap((name) => [`${name} begins`, `${name} ends`]));
});
