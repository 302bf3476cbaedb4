import { encodeToPayloads } from '@temporalio/common/lib/internal-non-workflow/index.js';
import type { CancelReason } from '../src/log/records.ts';
import { isNotFound } from '../src/temporal/errors.ts';
import { turnWorkflowId } from '../workflows/ids.ts';
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
    const execution = { workflowId: turnWorkflowId(turnId) };
    try {
      if (sparesTools && (await runsToolOnce(execution))) return false;
      const details = await encodeToPayloads(options.loadedDataConverter, reason);
      await connection.workflowService.terminateWorkflowExecution({
        namespace: options.namespace,
        workflowExecution: execution,
        reason: `cancelled (${reason}), but the turn did not end`,
        ...(details && { details: { payloads: details } }),
      });
    } catch (error) {
      if (!isNotFound(error)) throw error; // else it has closed by itself
    }
    return true;
  };

  async function runsToolOnce(execution: { workflowId: string }): Promise<boolean> {
    const { pendingActivities } = await connection.workflowService.describeWorkflowExecution({
      namespace: options.namespace,
      execution,
    });
    return (pendingActivities ?? []).some(
      ({ activityType, maximumAttempts }) => activityType?.name === 'callTool' && maximumAttempts === 1,
    );
  }
}
