import { ApplicationFailure } from '@temporalio/activity';
import type { LoadedSession, SessionStart } from '../src/core/session.ts';
import type { Dependencies } from './dependencies.ts';
import { failUnlessTransient } from '../src/engine/retry.ts';

/**
 * Loads the state with which a session's workflow continues where an earlier run, or another machine's, has stopped.
 */
export function createLoadSession(dependencies: Dependencies) {
  const { catalog, config, turnIndex, logs } = dependencies;
  return function loadSession({
    sessionId,
    begins,
  }: Pick<SessionStart, 'sessionId' | 'begins'>): Promise<LoadedSession> {
    return failUnlessTransient(async () => {
      const session = await catalog.sessions.get(sessionId);
      if (!session) throw ApplicationFailure.nonRetryable(`there is no session ${sessionId}`, 'session_not_found');
      const last = await turnIndex.confirmedLast(sessionId, begins);
      const tip = last && (await logs.status(last.id));
      const queue = await turnIndex.queued(sessionId);
      const newest = (await catalog.turns.newestId(sessionId, { except: begins })) ?? null;
      const rest = { queue, newest, closed: session.closed === 1, idleSeconds: config.sessionIdleSeconds };
      if (!tip) return { tip: null, open: false, ...rest };
      const { open, sessionId: _, ...ofTip } = tip;
      return { tip: ofTip, open, ...rest };
    });
  };
}
