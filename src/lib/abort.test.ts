import { expect, test } from 'vitest';
import { waitOrAbort } from './abort.ts';

test('whoever is aborted waits no longer, while the others do', async () => {
  const { promise, resolve } = Promise.withResolvers<number>();
  const abort = new AbortController();
  const gone = waitOrAbort(promise, abort.signal);
  const there = waitOrAbort(promise, new AbortController().signal);
  abort.abort(new Error('enough'));
  await expect(gone).rejects.toThrow('enough');
  await expect(waitOrAbort(promise, abort.signal)).rejects.toThrow('enough');
  resolve(1);
  expect(await there).toBe(1);
});
