import type { Logger } from 'pino';
import type { PendingAction } from '../catalog/actions.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { isOpenTurnState, stateAfter, type SessionState } from '../core/session-state.ts';
import type { TurnLogReader } from './turn-log-reader.ts';

interface Sources {
  catalog: Catalog;
  logs: TurnLogReader;
  log: Logger;
}

/**
 * A session as it is now. The catalog follows a log within a moment; so of a turn that has not ended there, the log is
 * read, and a client that has seen its end finds the session as the turn has left it.
 */
export async function sessionNow(
  session: SessionRow,
  sources: Sources,
): Promise<{ session: SessionRow; waiting: PendingAction[] }> {
  const { catalog, log } = sources;
  const [waiting, state] = await Promise.all([
    catalog.actions.pendingOf([session.id]),
    stateNow(session, sources).catch((error: unknown) => {
      log.warn({ sessionId: session.id, err: error }, 'a session is shown in the state that the catalog has');
      return session.state;
    }),
  ]);
  return { session: { ...session, state }, waiting: waiting.get(session.id) ?? [] };
}

async function stateNow({ id, state }: SessionRow, { catalog, logs }: Sources): Promise<SessionState | null> {
  if (!isOpenTurnState(state)) return state;
  const last = await catalog.turns.last(id);
  // It may have been archived since the session was read.
  if (!last || last.archived === 1) return (await catalog.sessions.get(id))?.state ?? state;
  const now = (await logs.currentRun(last.id)).state;
  if (isOpenTurnState(now)) return now;
  const { done } = await logs.firstAndLast(last.id);
  return done ? stateAfter(done) : state;
}
