import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { limitRunning } from './running-limit.ts';

let delayMs = 0;
const onReached = vi.fn();

beforeEach(() => {
  vi.useFakeTimers();
  onReached.mockReset();
  delayMs = 1_000;
});
afterEach(() => void vi.useRealTimers());

function start(): () => void {
  return limitRunning(5_000, () => delayMs, onReached);
}

test('a limit does not count the time in which a process waits for a processor', () => {
  start();
  delayMs += 3_000;
  vi.advanceTimersByTime(7_999);
  expect(onReached).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(onReached).toHaveBeenCalledOnce();
});

test('a process that only waits reaches it after a minute', () => {
  start();
  delayMs += 1_000_000;
  vi.advanceTimersByTime(59_999);
  expect(onReached).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(onReached).toHaveBeenCalledOnce();
});

test('a limit that is ended is not reached', () => {
  const end = start();
  delayMs += 3_000;
  vi.advanceTimersByTime(6_000);
  end();
  vi.advanceTimersByTime(100_000);
  expect(onReached).not.toHaveBeenCalled();
});
