import { ApplicationFailure, Context } from '@temporalio/activity';
import { terminateWorkflow } from '../src/temporal/end-workflow.ts';
import { sessionWorkflowId, turnWorkflowId } from '../src/core/temporal-names.ts';
import type { Dependencies } from './dependencies.ts';
import { withHeartbeat } from '../src/temporal/activity-heartbeat.ts';

/**
 * Terminates the workflows of a deleted session: its own first, since it could start another turn. Then notifies the
 * turn that waits for the session, and deletes the sessions that work for it.
 */
export function createEndSession({ catalog, client, delegator }: Dependencies) {
  return function endSession({ sessionId }: { sessionId: string }): Promise<void> {
    return withHeartbeat(async () => {
      if (await catalog.sessions.get(sessionId)) {
        throw ApplicationFailure.nonRetryable(`session ${sessionId} is not deleted`, 'session_exists');
      }
      const reason = 'the session was deleted';
      await terminateWorkflow(client, { workflowId: sessionWorkflowId(sessionId), reason });
      for await (const { id, archived } of catalog.turns.all(sessionId)) {
        if (archived) continue;
        // At a shutdown the attempt must throw, or it counts as lost.
        Context.current().cancellationSignal.throwIfAborted();
        await terminateWorkflow(client, { workflowId: turnWorkflowId(id), reason, details: 'client-cancelled' });
      }
      await delegator.sessionDeleted(sessionId);
    });
  };
}
