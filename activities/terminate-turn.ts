import type { CancelReason } from '../src/core/records.ts';
import { isNotFound } from '../src/temporal/errors.ts';
import { terminateWorkflow } from '../src/temporal/end-workflow.ts';
import { turnWorkflowId } from '../src/core/temporal-names.ts';
import type { Dependencies } from './dependencies.ts';

interface TerminateTurnInput {
  turnId: string;
  reason: CancelReason;
  /** Leave the turn alone while it runs a tool that must not be cut off. */
  sparesTools: boolean;
}

/**
 * Terminates a turn that was asked to end and has not: its log is closed by whoever reads it. Returns false if the turn
 * was spared.
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

  /** False for a turn that has closed by itself. */
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
