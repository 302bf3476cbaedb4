import type { CancelReason } from '../src/core/records/turn.ts';
import { isNotFound } from '../src/temporal/errors.ts';
import { terminateWorkflow } from '../src/temporal/end-workflow.ts';
import { turnWorkflowId } from '../src/core/temporal-names.ts';
import type { Dependencies } from './dependencies.ts';

interface TerminateTurnInput {
  turnId: string;
  reason: CancelReason;
  /** Do not terminate the turn while it runs a tool that must not be aborted. */
  sparesTools: boolean;
}

/**
 * Terminates a turn that was cancelled and has not ended; its log is closed with it. Returns false if the turn was
 * spared.
 */
export function createTerminateTurn({ client }: Dependencies) {
  const { connection, options } = client;

  return async function terminateTurn({ turnId, reason, sparesTools }: TerminateTurnInput): Promise<boolean> {
    const workflowId = turnWorkflowId(turnId);
    if (sparesTools && (await runsToolOnce(workflowId))) return false;
    await terminateWorkflow(client, {
      workflowId,
      reason: `cancelled (${reason}), but the turn did not end`,
      details: reason,
    });
    return true;
  };

  /** Whether the turn runs a tool that must run at most once; false for a turn that has closed. */
  async function runsToolOnce(workflowId: string): Promise<boolean> {
    try {
      const { pendingActivities } = await connection.workflowService.describeWorkflowExecution({
        namespace: options.namespace,
        execution: { workflowId },
      });
      return (pendingActivities ?? []).some(
        ({ activityType, maximumAttempts }) => activityType?.name === 'callTool' && maximumAttempts === 1,
      );
    } catch (error) {
      if (isNotFound(error)) return false;
      throw error;
    }
  }
}
