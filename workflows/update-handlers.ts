import { ApplicationFailure, TemporalFailure } from '@temporalio/workflow';
import type { Refusal } from '../src/core/input-rules.ts';
import { errorMessage } from './errors.ts';

/** The failure with which an Update rejects a command. */
export function refused({ code, message }: Refusal): ApplicationFailure {
  return ApplicationFailure.nonRetryable(message, code);
}

/**
 * Turns any error into a failure of the Update. Errors that are not Temporal's would fail the workflow task instead.
 */
export async function asUpdateFailure<T>(handler: () => Promise<T>): Promise<T> {
  try {
    return await handler();
  } catch (error) {
    if (error instanceof TemporalFailure) throw error;
    throw ApplicationFailure.nonRetryable(errorMessage(error), 'internal_error');
  }
}
