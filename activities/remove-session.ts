import { Context } from '@temporalio/activity';
import { isUnreadable } from '../src/encryption/cipher.ts';
import { TurnNotFound } from '../src/engine/turn-log-reader.ts';
import { deleteExecution } from '../src/temporal/end-workflow.ts';
import { sessionWorkflowId, turnWorkflowId } from '../src/core/temporal-names.ts';
import type { Dependencies } from './dependencies.ts';
import { withHeartbeat } from '../src/temporal/activity-heartbeat.ts';

/**
 * How long after a deletion work in progress may still leave data: a turn whose start its session had requested, the
 * result of a tool that had just ended, a command.
 */
const LATE_MS = 3_600_000;

/**
 * Removes the data of a deleted session: the histories and logs of its turns, its own history, its blobs and keys. It
 * is idempotent, and is repeated an hour later; then it removes the session's row too.
 */
export function createRemoveSession({ catalog, logs, blobs, client }: Dependencies) {
  return function removeSession({ sessionId }: { sessionId: string }): Promise<void> {
    return withHeartbeat(async () => {
      const deletedAt = await catalog.sessions.deletedAt(sessionId);
      const again = deletedAt && new Date(Date.parse(deletedAt) + LATE_MS);
      const isLast = !again || again.getTime() <= Date.now();
      for await (const { id, sequence } of catalog.turns.all(sessionId)) {
        // At a shutdown the attempt must throw, or it counts as lost.
        Context.current().cancellationSignal.throwIfAborted();
        const isFound = await deleteTurn(id);
        // A request that is not a turn yet may become one, and its row is how that turn is found.
        if (isFound || sequence !== null || isLast) await catalog.turns.remove(id);
      }
      await deleteListedRuns(sessionWorkflowId(sessionId));
      await blobs.deleteAll(sessionId);
      const now = new Date().toISOString();
      await catalog.sessions.forget(sessionId, { now, again: isLast ? undefined : again.toISOString() });
    });
  };

  /**
   * Deletes the runs of a turn, oldest first, since each refers to the previous one. Returns false if there is none.
   */
  async function deleteTurn(turnId: string): Promise<boolean> {
    const workflowId = turnWorkflowId(turnId);
    const earlier: string[] = [];
    try {
      let start = await logs.start(turnId);
      for (; start.carry; start = await logs.start(turnId, earlier[0])) earlier.unshift(start.carry.previousRunId);
      if (start.begun) earlier.unshift(start.begun.queuedRunId);
    } catch (error) {
      if (isUnreadable(error)) {
        // Its key is missing, so the log cannot be read; the histories must be deleted nevertheless.
        await deleteListedRuns(workflowId);
        return true;
      }
      if (!(error instanceof TurnNotFound)) throw error;
      if (earlier.length === 0) return false;
    }
    for (const runId of earlier) await deleteExecution(client, { workflowId, runId });
    await deleteExecution(client, { workflowId });
    return true;
  }

  /** Deletes the runs of a workflow that Temporal lists, and its last one; they need not form a chain. */
  async function deleteListedRuns(workflowId: string): Promise<void> {
    const runs = client.workflow.list({ query: `WorkflowId = '${workflowId}'` });
    for await (const { runId } of runs) await deleteExecution(client, { workflowId, runId });
    await deleteExecution(client, { workflowId });
  }
}
