import { ActivityCancellationDetails } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test } from 'vitest';
import type { Appended } from '../src/core/history.ts';
import { StartedOnce } from './started-once.ts';

const result = (stamp: string): Appended => ({ records: [], stamp });

/** An activity that is cancelled, as its work is prepared or while it runs. */
function cancelled(work: (env: MockActivityEnvironment) => Parameters<StartedOnce<string, Appended>['run']>[0]) {
  const env = new MockActivityEnvironment({ attempt: 1 });
  const once = new StartedOnce<string, Appended>();
  return env.run<[], Appended, () => Promise<Appended>>(() => once.run(work(env)));
}

const cancel = (env: MockActivityEnvironment): void =>
  env.cancel('CANCELLED', new ActivityCancellationDetails({ cancelRequested: true }));

const rest = {
  key: 'call',
  store: (text: string) => Promise.resolve(result(text)),
  notStarted: () => result('not started'),
};

test('what is cancelled while it is prepared has not started', async () => {
  const ended = cancelled((env) => ({
    ...rest,
    prepare: (signal) => {
      cancel(env);
      return Promise.reject(signal.reason as Error);
    },
  }));
  expect(await ended).toMatchObject({ stamp: 'not started' });
});

test('what is cancelled while it runs has the result that it ends with', async () => {
  const ended = cancelled((env) => ({
    ...rest,
    prepare: () =>
      Promise.resolve(async (signal) => {
        await Promise.resolve();
        cancel(env);
        return signal.aborted ? 'interrupted' : 'went on';
      }),
  }));
  expect(await ended).toMatchObject({ stamp: 'interrupted' });
});

test('another error of the preparation is one of the activity', async () => {
  const ended = cancelled(() => ({ ...rest, prepare: () => Promise.reject(new Error('no such call')) }));
  await expect(ended).rejects.toThrow('no such call');
});
