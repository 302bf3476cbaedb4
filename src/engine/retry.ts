import { setTimeout as sleep } from 'node:timers/promises';
import { log, ApplicationFailure } from '@temporalio/activity';
import { isUnavailable } from './unavailable.ts';
import { backoffMs } from '../lib/backoff.ts';
import { errorMessage } from '../lib/errors.ts';

const FIRST_WAIT_MS = 200;
const MAX_WAIT_MS = 5_000;

/**
 * Does something again while the catalog, the disk or Temporal is away, or whatever else `isWorthWaiting` says. For
 * activities that Temporal must not retry, around the parts of them that may well be.
 */
export async function retryWhileUnavailable<T>(
  work: () => Promise<T>,
  signal: AbortSignal,
  isWorthWaiting: (error: unknown) => boolean = isUnavailable,
): Promise<T> {
  for (let retries = 0; ; retries++) {
    try {
      return await work();
    } catch (error) {
      if (!isWorthWaiting(error) || signal.aborted) throw error;
      if (retries === 0) log.warn('something that an activity needs is not available; it waits', { error });
      await sleep(backoffMs(retries, { first: FIRST_WAIT_MS, max: MAX_WAIT_MS }), undefined, { signal });
    }
  }
}

/**
 * Lets Temporal retry `work` for as long as something that it needs is away; any other error is final. A session asks
 * for such work in the middle of a command, and would be deaf for ever if it was retried in vain.
 */
export async function failUnlessTransient<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isUnavailable(error) || error instanceof ApplicationFailure) throw error;
    throw ApplicationFailure.nonRetryable(errorMessage(error), 'internal_error');
  }
}
