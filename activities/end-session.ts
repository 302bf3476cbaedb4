import { ApplicationFailure } from '@temporalio/activity';
import { terminateWorkflow } from '../src/temporal/end-execution.ts';
import { sessionWorkflowId, turnWorkflowId } from '../workflows/ids.ts';
import type { Dependencies } from './dependencies.ts';
import { startHeartbeat } from './heartbeat.ts';
import { turnsOf } from './turns-of.ts';

/** Ends what runs of a deleted session: its workflow first, for it could start another turn. */
export function createEndSession({ catalog, client }: Dependencies) {
  return async function endSession({ sessionId }: { sessionId: string }): Promise<void> {
    const heartbeat = startHeartbeat();
    try {
      if (await catalog.sessions.get(sessionId)) {
        throw ApplicationFailure.nonRetryable(`session ${sessionId} is not deleted`, 'session_exists');
      }
      const reason = 'the session was deleted';
      await terminateWorkflow(client, { workflowId: sessionWorkflowId(sessionId), reason });
      for await (const { id, archived } of turnsOf(catalog, sessionId)) {
        if (archived) continue;
        await terminateWorkflow(client, { workflowId: turnWorkflowId(id), reason, details: 'client-cancelled' });
      }
    } finally {
      heartbeat.stop();
    }
  };
}
