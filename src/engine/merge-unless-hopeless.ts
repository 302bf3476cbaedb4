import { ApplicationFailure } from '@temporalio/activity';
import { isUnavailable } from './unavailable.ts';

/**
 * Lets Temporal retry `work` for as long as something that it needs is away; any other error is final. A session asks
 * for such work in the middle of a command, and would be deaf for ever if it was retried in vain.
 */
export async function unlessHopeless<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isUnavailable(error) || error instanceof ApplicationFailure) throw error;
    throw ApplicationFailure.nonRetryable(error instanceof Error ? error.message : String(error), 'internal_error');
  }
}
