import { ApplicationFailure, Context } from '@temporalio/activity';
import type { ScheduledBy } from '../core/history.ts';

/**
 * Fails the activities of a run that results from a reset. A turn that an operator has reset has ended with the run
 * that was reset; the new run would call the model again, and tools that may have run, so it must end instead. Temporal
 * repeats activities that were pending at the reset point for the new run.
 */
export function rejectResetRun({ runId }: ScheduledBy): void {
  const { workflowExecution } = Context.current().info;
  if (runId === workflowExecution?.runId) return;
  throw ApplicationFailure.nonRetryable('The turn has ended: an operator has reset it.', 'turn_reset');
}
