import type { TurnStatus } from '../src/engine/turn-sources.ts';
import type { Dependencies } from './dependencies.ts';
import { failUnlessTransient } from '../src/engine/retry.ts';
import { withHeartbeat } from '../src/temporal/activity-heartbeat.ts';

/**
 * The status of a turn; undefined if the session has no such turn. The calls that are pending on it are resolved once,
 * on any branch: after a turn has followed it, none is pending. Otherwise a second branch would repeat calls that must
 * run at most once.
 */
export function createInspectTurn(dependencies: Dependencies) {
  const { catalog, logs, turnIndex } = dependencies;
  return function inspectTurn(input: { sessionId: string; turnId: string }): Promise<TurnStatus | undefined> {
    const inspect = async (): Promise<TurnStatus | undefined> => {
      const turn = await logs.status(input.turnId);
      if (turn?.sessionId !== input.sessionId) return undefined;
      if (turn.pending.length === 0) return turn;
      // The turn that follows it may have been started so recently that it is not in the index yet.
      await turnIndex.reconcileRequests(turn.sessionId);
      const { threads: _, ...followed } = turn;
      return (await catalog.turns.isFollowed(turn.turnId)) ? { ...followed, pending: [] } : turn;
    };
    return withHeartbeat(() => failUnlessTransient(inspect));
  };
}
