import { expect, test } from 'vitest';
import { unlessAborted } from './abort.ts';

test('whoever is aborted waits no longer, while the others do', async () => {
  const { promise, resolve } = Promise.withResolvers<number>();
  const abort = new AbortController();
  const gone = unlessAborted(promise, abort.signal);
  const there = unlessAborted(promise, new AbortController().signal);
  abort.abort(new Error('enough'));
  await expect(gone).rejects.toThrow('enough');
  await expect(unlessAborted(promise, abort.signal)).rejects.toThrow('enough');
  resolve(1);
  expect(await there).toBe(1);
});
