import { ApplicationFailure } from '@temporalio/activity';
import type { SessionStart, SessionState } from '../src/core/session.ts';
import { turnStatus } from '../src/engine/turn-status.ts';
import type { Dependencies } from './dependencies.ts';
import { failUnlessTransient } from '../src/engine/retry.ts';

/**
 * Loads the state with which a session's workflow continues where an earlier run, or another machine's, has stopped.
 */
export function createLoadSession(dependencies: Dependencies) {
  const { catalog, turnIndex, logs } = dependencies;
  return function loadSession({
    sessionId,
    begins,
  }: Pick<SessionStart, 'sessionId' | 'begins'>): Promise<SessionState> {
    return failUnlessTransient(async () => {
      const session = await catalog.sessions.get(sessionId);
      if (!session) throw ApplicationFailure.nonRetryable(`there is no session ${sessionId}`, 'session_not_found');
      const last = await turnIndex.confirmedLast(sessionId, begins);
      const tip = last && (await turnStatus(last.id, { catalog, logs }));
      if (!tip) return { tip: null, open: false, closed: session.closed === 1 };
      const { open, sessionId: _, ...rest } = tip;
      return { tip: rest, open, closed: session.closed === 1 };
    });
  };
}
