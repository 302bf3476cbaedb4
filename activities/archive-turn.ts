import { Context } from '@temporalio/activity';
import { archive } from '../src/engine/archive-turn.ts';
import { TurnNotFound } from '../src/engine/turn-log-reader.ts';
import type { Dependencies } from './dependencies.ts';
import { withHeartbeat } from '../src/temporal/activity-heartbeat.ts';

interface ArchiveTurnInput {
  turnId: string;
  /** For the log context. */
  sessionId: string;
  /** The archive has at least the entries up to this ordinal afterwards. */
  through: number;
}

/** Archives a part of the log of a running turn. */
export function createArchiveTurn(dependencies: Dependencies) {
  return function archiveTurn({ turnId, through }: ArchiveTurnInput): Promise<void> {
    return withHeartbeat(async () => {
      try {
        await archive({ ...dependencies, turnId, through, signal: Context.current().cancellationSignal });
      } catch (error) {
        if (!(error instanceof TurnNotFound)) throw error;
        dependencies.log.warn({ turnId }, 'a turn was deleted before it was archived');
      }
    });
  };
}
