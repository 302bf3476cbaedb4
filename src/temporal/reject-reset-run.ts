import { ApplicationFailure, Context } from '@temporalio/activity';
import type { RunGuard } from '../core/history.ts';

/**
 * A turn that an operator has reset has ended with the run that was reset. The run that came of it would ask the model
 * again, and run tools that may have run: it is to come to its end instead. What was under way at the point to which it
 * was reset, Temporal has done again for the new run.
 */
export function rejectResetRun({ runId, isReset }: RunGuard): void {
  const { workflowExecution } = Context.current().info;
  if (!isReset && runId === workflowExecution?.runId) return;
  throw ApplicationFailure.nonRetryable('The turn has ended: an operator has reset it.', 'turn_reset');
}
