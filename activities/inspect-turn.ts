import { turnStatus, type TurnStatus } from '../src/engine/turn-status.ts';
import type { Dependencies } from './dependencies.ts';
import { failUnlessTransient } from '../src/engine/retry.ts';

/**
 * How a turn of a session stands; undefined if the session has no such turn. The calls that wait on it are answered
 * once, on whichever branch: once a turn has followed it, nothing waits there any more. Otherwise a second branch would
 * run again what must run at most once.
 */
export function createInspectTurn(dependencies: Dependencies) {
  const { catalog, turnIndex } = dependencies;
  return function inspectTurn(input: { sessionId: string; turnId: string }): Promise<TurnStatus | undefined> {
    return failUnlessTransient(async () => {
      const turn = await turnStatus(input.turnId, dependencies);
      if (turn?.sessionId !== input.sessionId) return undefined;
      if (turn.pending.length === 0) return turn;
      // The turn that has answered may have been started a moment ago, and not be in the index yet.
      await turnIndex.reconcileRequests(turn.sessionId);
      return (await catalog.turns.isFollowed(turn.turnId)) ? { ...turn, pending: [] } : turn;
    });
  };
}
