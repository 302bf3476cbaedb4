import { Context } from '@temporalio/activity';
import { indexActions as index } from '../src/engine/index-actions.ts';
import { TurnNotFound } from '../src/engine/turn-log-reader.ts';
import { withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import type { Dependencies } from './dependencies.ts';

interface IndexActionsInput {
  turnId: string;
  /** For the log context. */
  sessionId: string;
  /** The last entry to index. */
  through: number;
}

/** Indexes the actions of a running turn, so that the inbox and webhooks have them before it ends. */
export function createIndexActions(dependencies: Dependencies) {
  return function indexActions({ turnId, through }: IndexActionsInput): Promise<void> {
    return withHeartbeat(async () => {
      try {
        await index({ ...dependencies, turnId, through, signal: Context.current().cancellationSignal });
      } catch (error) {
        if (!(error instanceof TurnNotFound)) throw error;
        dependencies.log.warn({ turnId }, 'a turn was deleted before its actions were indexed');
      }
    });
  };
}
