import { ActivityCancellationDetails } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test, vi } from 'vitest';
import { BlobsUnavailable } from '../blobs/blob-store.ts';
import { PayloadTooLarge } from '../blobs/offload.ts';
import { NEVER_ABORTED } from '../lib/abort.ts';
import { retryWhileUnavailable, storeWhileUnavailable } from './retry.ts';

const outage = new BlobsUnavailable('away');

test('an outage is waited for while the result is awaited, also after the workflow has cancelled the activity', async () => {
  const env = new MockActivityEnvironment();
  let calls = 0;
  const stored = await env.run(() =>
    storeWhileUnavailable(() => {
      calls += 1;
      if (calls === 1) env.cancel();
      return calls < 3 ? Promise.reject(outage) : Promise.resolve('stored');
    }, NEVER_ABORTED),
  );
  expect([stored, calls]).toEqual(['stored', 3]);
});

test.each([{ timedOut: true }, { notFound: true }])(
  'an outage is not waited for once nothing awaits the result: %s',
  async (details) => {
    const env = new MockActivityEnvironment();
    let calls = 0;
    const retried = env.run(() =>
      retryWhileUnavailable(() => {
        calls += 1;
        if (calls === 2) env.cancel('TIMED_OUT', new ActivityCancellationDetails(details));
        if (calls > 2) throw new Error('it is retried for ever');
        return Promise.reject(outage);
      }, NEVER_ABORTED),
    );
    await expect(retried).rejects.toBe(outage);
    expect(calls).toBe(2);
  },
);

test('an error of the store that is no outage ends the activity at once, and for good', async () => {
  const store = vi.fn(() => Promise.reject(new TypeError('not a function')));
  const stored = new MockActivityEnvironment().run(() => storeWhileUnavailable(store, NEVER_ABORTED));
  await expect(stored).rejects.toMatchObject({
    nonRetryable: true,
    type: 'not_stored',
    message: 'the result could not be stored: not a function',
  });
  expect(store).toHaveBeenCalledTimes(1);
  const large = new PayloadTooLarge('too large');
  await expect(
    new MockActivityEnvironment().run(() => storeWhileUnavailable(() => Promise.reject(large), NEVER_ABORTED)),
  ).rejects.toBe(large);
});
