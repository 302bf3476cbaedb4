import { getEventListeners } from 'node:events';
import { expect, test, vi } from 'vitest';
import { linkSignal, NEVER_ABORTED, onAbort, waitOrAbort } from './abort.ts';

test('an aborted caller stops waiting while the others continue', async () => {
  const { promise, resolve } = Promise.withResolvers<number>();
  const abort = new AbortController();
  const aborted = waitOrAbort(promise, abort.signal);
  const waiting = waitOrAbort(promise, NEVER_ABORTED);
  abort.abort(new Error('enough'));
  await expect(aborted).rejects.toThrow('enough');
  await expect(waitOrAbort(promise, abort.signal)).rejects.toThrow('enough');
  resolve(1);
  expect(await waiting).toBe(1);
});

test('waiting leaves no listener on the signal', async () => {
  const { signal } = new AbortController();
  await waitOrAbort(Promise.resolve(), signal);
  await expect(waitOrAbort(Promise.reject(new Error('no')), signal)).rejects.toThrow('no');
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

test('a listener is called once, immediately if the signal is already aborted', () => {
  const abort = new AbortController();
  const listener = vi.fn<() => void>();
  onAbort(abort.signal, listener);
  expect(listener).not.toHaveBeenCalled();
  abort.abort();
  expect(listener).toHaveBeenCalledTimes(1);
  onAbort(abort.signal, listener);
  expect(listener).toHaveBeenCalledTimes(2);
});

test('a linked controller is aborted with the reason of its parent, until it is unlinked', () => {
  const parent = new AbortController();
  const [linked, unlinked, late] = [new AbortController(), new AbortController(), new AbortController()];
  linkSignal(parent.signal, linked);
  linkSignal(parent.signal, unlinked)();
  parent.abort('enough');
  linkSignal(parent.signal, late);
  expect([linked, unlinked, late].map(({ signal }) => signal.reason)).toEqual(['enough', undefined, 'enough']);
});

test('the signal that is never aborted keeps no listeners', () => {
  const remove = onAbort(NEVER_ABORTED, () => undefined);
  expect(getEventListeners(NEVER_ABORTED, 'abort')).toEqual([]);
  remove();
  expect(AbortSignal.any([NEVER_ABORTED, AbortSignal.abort('enough')]).reason).toBe('enough');
});
