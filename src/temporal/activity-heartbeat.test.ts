import { ActivityCancellationDetails, ApplicationFailure } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test } from 'vitest';
import { MAX_LOST_ATTEMPTS, withHeartbeat } from './activity-heartbeat.ts';

/** An activity as Temporal retries it: each attempt gets the last heartbeat's details. */
class RetriedActivity {
  #attempt = 0;
  #reported: unknown;

  /** An attempt that does some work. */
  async try<T>(work: () => Promise<T>): Promise<T> {
    return run(this.#next(), work);
  }

  /** An attempt that stops sending heartbeats while it works. */
  async lose(): Promise<void> {
    const env = this.#next();
    const stopped = new Promise<void>((resolve) => {
      env.context.cancellationSignal.addEventListener('abort', () => resolve());
    });
    const ended = run(env, () => stopped);
    await Promise.resolve();
    env.removeAllListeners('heartbeat');
    env.cancel('TIMED_OUT', new ActivityCancellationDetails({ timedOut: true }));
    await ended;
  }

  /** An attempt that its worker cannot start. */
  skip(): void {
    this.#next();
  }

  #next(): MockActivityEnvironment {
    this.#attempt += 1;
    const env = new MockActivityEnvironment({ attempt: this.#attempt, heartbeatDetails: this.#reported });
    env.on('heartbeat', (reported) => (this.#reported = reported));
    return env;
  }
}

function run<T>(env: MockActivityEnvironment, work: () => Promise<T>): Promise<T> {
  return env.run<[], T, () => Promise<T>>(() => withHeartbeat(work));
}

const shutdown = () => Promise.reject(ApplicationFailure.retryable('the worker is shutting down', 'WorkerShutdown'));
const work = () => Promise.resolve('done');

test('an activity is not retried after five lost attempts, even with failures in between', async () => {
  const activity = new RetriedActivity();
  for (let lost = 0; lost < MAX_LOST_ATTEMPTS; lost++) {
    await expect(activity.try(shutdown)).rejects.toThrow('the worker is shutting down');
    await activity.lose();
  }
  await expect(activity.try(work)).rejects.toMatchObject({ nonRetryable: true, type: 'attempts_lost' });
});

test('an activity is retried after four lost attempts', async () => {
  const activity = new RetriedActivity();
  for (let lost = 0; lost < MAX_LOST_ATTEMPTS - 1; lost++) await activity.lose();
  expect(await activity.try(work)).toBe('done');
});

test('attempts that fail or end with the shutdown of their worker do not count as lost', async () => {
  const activity = new RetriedActivity();
  for (let n = 0; n < 20; n++) await expect(activity.try(shutdown)).rejects.toThrow('the worker is shutting down');
  expect(await activity.try(work)).toBe('done');
});

test('attempts that no worker could start, because the key to their input was missing, do not count as lost', async () => {
  const activity = new RetriedActivity();
  for (let n = 0; n < 20; n++) activity.skip();
  expect(await activity.try(work)).toBe('done');
});
