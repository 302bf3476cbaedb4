import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { TimeLimit } from './time-limit.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a limit counts the time between start and stop only', () => {
  const onReached = vi.fn();
  const limit = new TimeLimit(1000, onReached);
  limit.start();
  vi.advanceTimersByTime(600);
  limit.stop();
  vi.advanceTimersByTime(60_000);
  limit.start();
  vi.advanceTimersByTime(399);
  expect(onReached).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(onReached).toHaveBeenCalledOnce();
});

test('a limit counts what is spent while it stands still', () => {
  const onReached = vi.fn();
  const limit = new TimeLimit(1000, onReached);
  expect(limit.spend(600)).toBe(true);
  limit.start();
  vi.advanceTimersByTime(399);
  expect(onReached).not.toHaveBeenCalled();
  limit.stop();
  expect(limit.spend(1)).toBe(false);
});
