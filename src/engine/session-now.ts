import type { PendingAction } from '../catalog/actions.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { OPEN_TURN_STATES, stateAfter, type SessionState } from '../core/session-state.ts';
import { unlessUnreadable, type TurnLogReader } from './turn-log-reader.ts';
import type { Logger } from 'pino';

/**
 * A session as it is now. The catalog follows a log within a moment; so of a turn that has not ended there, the log is
 * read, and a client that has seen its end finds the session as the turn has left it.
 */
export async function sessionNow(
  session: SessionRow,
  services: { catalog: Catalog; logs: TurnLogReader; log: Logger },
): Promise<{ session: SessionRow; waiting: PendingAction[] }> {
  const [waiting, state] = await Promise.all([
    services.catalog.actions.pendingOf([session.id]),
    stateNow(session, services),
  ]);
  return { session: { ...session, state }, waiting: waiting.get(session.id) ?? [] };
}

async function stateNow(
  { id, state }: SessionRow,
  { catalog, logs, log }: { catalog: Catalog; logs: TurnLogReader; log: Logger },
): Promise<SessionState | null> {
  if (!OPEN_TURN_STATES.some((one) => one === state)) return state;
  const last = await catalog.turns.last(id);
  if (!last || last.archived === 1) return state;
  const turn = await unlessUnreadable(logs.currentRun(last.id), { turnId: last.id, log });
  const now = turn?.state;
  const isOpen = OPEN_TURN_STATES.find((one) => one === now);
  if (isOpen || !turn) return isOpen ?? state;
  const ends = await unlessUnreadable(logs.firstAndLast(last.id), { turnId: last.id, log });
  return ends?.done ? stateAfter(ends.done) : state;
}
