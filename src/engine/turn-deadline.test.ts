import type { Client } from '@temporalio/client';
import { MockActivityEnvironment } from '@temporalio/testing';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { cancelAtDeadline } from './turn-deadline.ts';

const DAY_MS = 86_400_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Runs work that never ends by itself, under a deadline. Returns the signals that the turn gets. */
function underDeadline(inMs: number): { signals: unknown[]; end: () => Promise<unknown> } {
  const signals: unknown[] = [];
  const client = {
    workflow: {
      getHandle: (workflowId: string, runId: string) => ({
        signal: (_: unknown, reason: string) => Promise.resolve(signals.push({ workflowId, runId, reason })),
      }),
    },
  } as unknown as Client;
  const work = Promise.withResolvers<string>();
  const env = new MockActivityEnvironment({ workflowExecution: { workflowId: 'turn_1', runId: 'run_1' } });
  const result = env.run(() => cancelAtDeadline(client, Date.now() + inMs, () => work.promise));
  return {
    signals,
    end: () => {
      work.resolve('done');
      return result;
    },
  };
}

test('a turn is cancelled once when its deadline passes during an activity', async () => {
  const { signals, end } = underDeadline(60_000);
  await vi.advanceTimersByTimeAsync(59_999);
  expect(signals).toEqual([]);
  await vi.advanceTimersByTimeAsync(120_000);
  expect(signals).toEqual([{ workflowId: 'turn_1', runId: 'run_1', reason: 'server-execution-timeout' }]);
  expect(await end()).toBe('done');
});

test('a deadline beyond the longest delay of a timer cancels nothing at once', async () => {
  const { signals, end } = underDeadline(30 * DAY_MS);
  await vi.advanceTimersByTimeAsync(DAY_MS);
  expect(signals).toEqual([]);
  await end();
});

test('an activity that has ended before the deadline cancels nothing', async () => {
  const { signals, end } = underDeadline(60_000);
  await end();
  await vi.advanceTimersByTimeAsync(60_001);
  expect(signals).toEqual([]);
});
