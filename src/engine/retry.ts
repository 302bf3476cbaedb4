import { setTimeout as sleep } from 'node:timers/promises';
import { ApplicationFailure, Context, log } from '@temporalio/activity';
import { PayloadTooLarge } from '../blobs/offload.ts';
import { isAwaited } from '../temporal/activity-heartbeat.ts';
import { isUnavailable } from './unavailable.ts';
import { backoffMs } from '../lib/backoff.ts';
import { errorMessage } from '../lib/errors.ts';

const FIRST_WAIT_MS = 200;
const MAX_WAIT_MS = 5_000;

/**
 * Repeats `work` while the catalog, the disk or Temporal is unavailable, or while `isRetryable` accepts its error; at
 * most for as long as the result of the activity is awaited. For the repeatable parts of activities that Temporal must
 * not retry.
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
      if (!isRetryable(error) || signal.aborted || !isAwaited(Context.current())) throw error;
      if (retries === 0) log.warn('a dependency of an activity is unavailable; it is retried', { error });
      await sleep(backoffMs(retries, { first: FIRST_WAIT_MS, max: MAX_WAIT_MS }), undefined, { signal });
    }
  }
}

/**
 * Stores a part of an activity's result, with retries for as long as the store is unavailable. Any other error ends the
 * activity: a further attempt would call the model or the tool again, and end like this one.
 * @throws PayloadTooLarge
 */
export async function storeWhileUnavailable<T>(store: () => Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await retryWhileUnavailable(store, signal);
  } catch (error) {
    if (error instanceof PayloadTooLarge || isUnavailable(error) || signal.aborted) throw error;
    throw ApplicationFailure.nonRetryable(`the result could not be stored: ${errorMessage(error)}`, 'not_stored');
  }
}

/**
 * Rethrows outages, which Temporal retries; any other error becomes non-retryable. The session workflow awaits this
 * with its mutex locked, so an endless retry would block every later command.
 */
export async function failUnlessTransient<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isUnavailable(error) || error instanceof ApplicationFailure) throw error;
    throw ApplicationFailure.nonRetryable(errorMessage(error), 'internal_error');
  }
}
