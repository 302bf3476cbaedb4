import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { deciderOf, mayOnSession } from '../../auth/rights.ts';
import type { KernelCatalog } from '../../catalog/catalog.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { isOfRun } from '../../catalog/session-types.ts';
import { actionKind } from '../../core/actions.ts';
import { isId } from '../../core/ids.ts';
import type { TurnDone } from '../../core/records/turn.ts';
import { isOpenTurnState, stateAfter, type SessionState } from '../../core/session-state.ts';
import type { Caller } from '../../core/subject.ts';
import { sessionNotFound } from '../../engine/access.ts';
import type { TurnLogReader } from '../../engine/turn-log-reader.ts';
import type { Actions, PendingAction } from './action-rows.ts';

interface Sources {
  catalog: {
    sessions: Pick<KernelCatalog['sessions'], 'get'>;
    turns: Pick<KernelCatalog['turns'], 'last' | 'get'>;
    actions: Pick<Actions, 'pendingOf'>;
  };
  logs: Pick<TurnLogReader, 'currentRun' | 'firstAndLast'>;
  log: Logger;
}

/** The pauses between the reads that wait for a turn's end in the catalog, which follows the log within a moment. */
const LAG_PAUSES_MS = [20, 40, 80, 160, 320];

/**
 * A session in its current state, with its pending actions. If its turn has not ended in the catalog, the log is read,
 * so that a client that has seen the end finds the session in the state after the turn.
 */
export async function sessionNow(
  session: SessionRow,
  sources: Sources,
): Promise<{ session: SessionRow; waiting: PendingAction[] }> {
  const { catalog, log } = sources;
  const { state, waiting } = await lastTurnNow(session, sources).catch((error: unknown): LastTurn => {
    log.warn({ sessionId: session.id, err: error }, 'cannot read the log of a turn: using the state in the catalog');
    return { state: session.state };
  });
  // Read after the state, which may have waited until the actions were indexed.
  const rows = waiting ?? (await catalog.actions.pendingOf([session.id])).get(session.id) ?? [];
  return { session: { ...session, state }, waiting: rows };
}

/**
 * The session, if the caller may read it, or may or could decide one of its actions. If the caller may not read it,
 * `answerCalls` shows nothing but these actions.
 * @throws EngineError `session_not_found`
 */
export async function sessionWithAnswers(
  catalog: Pick<KernelCatalog, 'sessions'> & { actions: Actions },
  id: string,
  caller: Caller,
): Promise<SessionRow> {
  const session = isId(id) ? await catalog.sessions.get(id) : undefined;
  if (!session || isOfRun(session)) throw sessionNotFound(id);
  const isFound = mayOnSession(caller, session, 'read') || (await catalog.actions.hasFor(id, deciderOf(caller)));
  if (!isFound) throw sessionNotFound(id);
  return session;
}

interface LastTurn {
  state: SessionState | null;
  /** From the log, if the catalog does not have the turn's end; undefined if the catalog has the pending actions. */
  waiting?: PendingAction[];
}

async function lastTurnNow({ id, state }: SessionRow, { catalog, logs }: Sources): Promise<LastTurn> {
  if (!isOpenTurnState(state)) return { state };
  const last = await catalog.turns.last(id);
  if (!last) return { state };
  // The turn may have been archived since the session was read.
  if (last.archived === 0) {
    const now = (await logs.currentRun(last.id)).state;
    if (isOpenTurnState(now)) return { state: now };
    if (!(await isArchivedSoon(last.id, catalog))) {
      const { done } = await logs.firstAndLast(last.id);
      return done ? { state: stateAfter(done), waiting: pendingAfter(done, last.id) } : { state };
    }
  }
  return { state: (await catalog.sessions.get(id))?.state ?? state };
}

/** Waits a moment until the catalog has the end of an ended turn. False if it still does not. */
async function isArchivedSoon(turnId: string, { turns }: Sources['catalog']): Promise<boolean> {
  for (const pause of LAG_PAUSES_MS) {
    await sleep(pause);
    if ((await turns.get(turnId))?.archived !== 0) return true;
  }
  return false;
}

/** The pending actions after a turn's end. Later answers and sign-ins are recorded in the index only. */
function pendingAfter({ end }: TurnDone, turnId: string): PendingAction[] {
  const required = end.status === 'done' ? end.requiredActions : [];
  const signIns = required.flatMap((one) => (one.kind === 'mcp.auth_required' ? one.servers : []));
  const calls = required.flatMap((one) => (one.kind === 'mcp.auth_required' ? [] : one.calls));
  return [
    // Several calls may wait for one sign-in.
    ...new Map(
      signIns.map(({ signInId }) => [signInId, { kind: 'sign_in', turn_id: turnId, tool_call_id: null }] as const),
    ).values(),
    ...calls.map((call) => ({ kind: actionKind(call), turn_id: turnId, tool_call_id: call.toolCallId })),
  ];
}
