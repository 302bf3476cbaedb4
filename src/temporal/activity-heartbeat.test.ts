import { ActivityCancellationDetails, ApplicationFailure } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { afterEach, expect, test, vi } from 'vitest';
import { MAX_REASON_BYTES, type Attempt } from '../core/attempts.ts';
import { MAX_LOST_ATTEMPTS, withHeartbeat } from './activity-heartbeat.ts';
import type { OwnAttempts } from './own-attempts.ts';
import { WORKER_IDENTITY } from './worker-identity.ts';

/** An activity as Temporal retries it: each attempt gets the last heartbeat's details. */
class RetriedActivity {
  #attempt = 0;
  #reported: unknown;
  readonly #options: Parameters<typeof withHeartbeat>[1];

  constructor(options: Parameters<typeof withHeartbeat>[1] = {}) {
    this.#options = options;
  }

  /** An attempt that does some work. */
  async try<T>(work: () => Promise<T>): Promise<T> {
    return this.tryWith(work);
  }

  /** The same for work that adds the attempts to its result. */
  async tryWith<T>(work: (attempts: OwnAttempts) => Promise<T>): Promise<T> {
    const { giveUp: _, ...options } = this.#options ?? {};
    return this.#next().run<[], T, () => Promise<T>>(() => withHeartbeat(work, options));
  }

  /** An attempt that stops sending heartbeats while it works. */
  async lose(): Promise<void> {
    const env = this.#next();
    const stopped = new Promise<void>((resolve) => {
      env.context.cancellationSignal.addEventListener('abort', () => resolve());
    });
    const ended = env.run(() => withHeartbeat(() => stopped, this.#options));
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

/** The milliseconds after which an activity without an end sends heartbeats, given the times of cancel hints. */
async function heartbeatTimes({ forMs, hintsAt = [], ...info }: HeartbeatTimes): Promise<number[]> {
  vi.useFakeTimers();
  const begin = Date.now();
  const times: number[] = [];
  let hint = (): void => undefined;
  let isSubscribed = true;
  const onCancelHint = (listener: () => void) => {
    hint = listener;
    return () => (isSubscribed = false);
  };
  const env = new MockActivityEnvironment(info);
  env.on('heartbeat', () => times.push(Date.now() - begin));
  const end = Promise.withResolvers<string>();
  const running = env.run(() => withHeartbeat(() => end.promise, { onCancelHint }));
  for (const at of hintsAt) setTimeout(() => hint(), at);
  await vi.advanceTimersByTimeAsync(forMs);
  expect(env.context.cancellationSignal.aborted).toBe(false);
  end.resolve('done');
  await running;
  expect([isSubscribed, vi.getTimerCount()]).toEqual([false, 0]);
  return times;
}

interface HeartbeatTimes {
  forMs: number;
  hintsAt?: number[];
  heartbeatTimeoutMs?: number;
}

afterEach(() => vi.useRealTimers());

test('two of the heartbeats within a time-out may be lost', async () => {
  expect(await heartbeatTimes({ forMs: 4_000, heartbeatTimeoutMs: 4_000 })).toEqual([1_300, 2_600, 3_900]);
  expect(await heartbeatTimes({ forMs: 900, heartbeatTimeoutMs: 900 })).toEqual([300, 600, 900]);
  expect(await heartbeatTimes({ forMs: 4_000, heartbeatTimeoutMs: 60_000 })).toEqual([1_300, 2_600, 3_900]);
});

test('a hint of a cancel is followed by heartbeats at once, then less and less often', async () => {
  const times = await heartbeatTimes({ forMs: 6_000, hintsAt: [1_000] });
  const sinceHint = times.map((time) => time - 1_000);
  expect(sinceHint).toEqual([20, 60, 140, 300, 620, 1_260, 2_540, 3_840]);
});

test('each further hint starts the frequent heartbeats again', async () => {
  expect(await heartbeatTimes({ forMs: 200, hintsAt: [0, 5, 100] })).toEqual([25, 65, 120, 160]);
});

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

test('an activity reports its attempts: what they called, who took over, which were lost, and how they failed', async () => {
  const retried: Attempt[] = [];
  const options = { called: () => ({ provider: 'openai' }), onRetry: (failed: Attempt) => void retried.push(failed) };
  const activity = new RetriedActivity(options);
  const key = 'Bearer tok_1234567890';
  const overloaded = () => Promise.reject(ApplicationFailure.retryable(`${key} ${'x'.repeat(300)}`, 'overloaded'));
  await expect(activity.try(shutdown)).rejects.toThrow('the worker is shutting down');
  await activity.lose();
  await expect(activity.try(overloaded)).rejects.toThrow(key);
  const { attempts } = await activity.tryWith((own) => Promise.resolve(own.addTo({})));
  const known = {
    startedAt: expect.any(String),
    endedAt: expect.any(String),
    worker: WORKER_IDENTITY,
    provider: 'openai',
  };
  const reason = expect.stringMatching(/^Bearer \[hidden\] x+…$/);
  expect(attempts).toEqual([
    { ...known, number: 1, outcome: 'taken_over' },
    { ...known, number: 2, outcome: 'lost' },
    { ...known, number: 3, outcome: 'failed', failure: 'overloaded', reason },
    { number: 4, provider: 'openai' },
  ]);
  expect(attempts?.[2]?.reason?.length).toBeLessThanOrEqual(MAX_REASON_BYTES);
  expect(retried.map(({ number, outcome }) => [number, outcome])).toEqual([
    [1, 'taken_over'],
    [2, 'lost'],
    [3, 'failed'],
  ]);
});

test('an attempt that was lost before its first heartbeat is counted by its number', async () => {
  const activity = new RetriedActivity();
  activity.skip();
  const { attempts } = await activity.tryWith((own) => Promise.resolve(own.addTo({})));
  expect(attempts).toEqual([{ number: 1, outcome: 'lost', endedAt: expect.any(String) }, { number: 2 }]);
});

test('the first and the last attempts are kept, and a failure that ends the activity has them', async () => {
  const activity = new RetriedActivity();
  for (let n = 0; n < 15; n++) await expect(activity.try(shutdown)).rejects.toThrow('the worker is shutting down');
  const final = () => Promise.reject(ApplicationFailure.nonRetryable('not stored', 'not_stored'));
  const error: unknown = await activity.try(final).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ nonRetryable: true, type: 'not_stored', message: 'not stored' });
  const details = error instanceof ApplicationFailure ? error.details : undefined;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as the history gives it
  const [{ attempts = [] } = {}] = (details ?? []) as { attempts?: Attempt[] }[];
  expect(attempts.map(({ number }) => number)).toEqual([1, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
  expect(attempts.at(-1)).toMatchObject({ outcome: 'failed', failure: 'not_stored', reason: 'not stored' });
});

test('the result of an activity that succeeds at once has no attempts in it', async () => {
  const activity = new RetriedActivity();
  expect(await activity.tryWith((own) => Promise.resolve(own.addTo({ records: [] })))).toEqual({ records: [] });
});
