import { continueAsNew, workflowInfo } from '@temporalio/workflow';
import type { TurnStart } from '../src/core/history.ts';
import type { turn } from './turn.ts';

/**
 * Continues a turn as new. A run that results from an operator's reset tells the next one, whose activities are rejected
 * and whose log is not read: a new run id alone says nothing of the reset.
 */
export function continueTurn(next: TurnStart): Promise<never> {
  const { runId, originalExecutionRunId } = workflowInfo();
  const isReset = runId !== originalExecutionRunId;
  return continueAsNew<typeof turn>({ ...(isReset && { resetRunId: originalExecutionRunId }), ...next });
}
