import { setTimeout as sleep } from 'node:timers/promises';
import { log, ApplicationFailure } from '@temporalio/activity';
import { isUnavailable } from './unavailable.ts';
import { backoffMs } from '../lib/backoff.ts';
import { errorMessage } from '../lib/errors.ts';

const FIRST_WAIT_MS = 200;
const MAX_WAIT_MS = 5_000;

/**
 * Repeats `work` while the catalog, the disk or Temporal is unavailable, or while `isRetryable` accepts its error. For
 * the repeatable parts of activities that Temporal must not retry.
 */
export async function retryWhileUnavailable<T>(
  work: () => Promise<T>,
  signal: AbortSignal,
  isRetryable: (error: unknown) => boolean = isUnavailable,
): Promise<T> {
  for (let retries = 0; ; retries++) {
    try {
      return await work();
    } catch (error) {
      if (!isRetryable(error) || signal.aborted) throw error;
      if (retries === 0) log.warn('a dependency of an activity is unavailable; it is retried', { error });
      await sleep(backoffMs(retries, { first: FIRST_WAIT_MS, max: MAX_WAIT_MS }), undefined, { signal });
    }
  }
}

/**
 * Rethrows outages, which Temporal retries; any other error becomes non-retryable. The session workflow awaits this while
 * it holds its mutex, so an endless retry would block every later command.
 */
export async function failUnlessTransient<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isUnavailable(error) || error instanceof ApplicationFailure) throw error;
    throw ApplicationFailure.nonRetryable(errorMessage(error), 'internal_error');
  }
}
