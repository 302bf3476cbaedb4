import { ApplicationFailure } from '@temporalio/activity';

/**
 * A turn that an operator has reset has ended with the run that was reset. The run that came of it would ask the model
 * again, and run tools that may have run: it is to come to its end instead.
 */
export function refuseReset({ isReset }: { isReset?: true }): void {
  if (!isReset) return;
  throw ApplicationFailure.nonRetryable('The turn has ended: an operator has reset it.', 'turn_reset');
}
