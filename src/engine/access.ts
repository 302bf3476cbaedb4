import { mayOnSession, refusalOnSession, type SessionAction } from '../auth/rights.ts';
import type { Caller } from '../core/subject.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { SessionRow, TurnRow } from '../catalog/schema.ts';
import { isOfRun } from '../catalog/session-types.ts';
import { isId } from '../core/ids.ts';
import { EngineError } from './errors.ts';
import { TurnNotFound, unlessNotFound, type TurnLogReader } from './turn-log-reader.ts';

/**
 * The session, if the caller has the right to `action` on it. A session that the caller may not read is reported as
 * missing.
 * @throws EngineError `session_not_found` or `forbidden`
 */
export async function authorizeSession(
  catalog: KernelCatalog,
  id: string,
  caller: Caller,
  action: SessionAction,
): Promise<SessionRow> {
  const session = await readableSession(catalog, id, caller);
  if (isOfRun(session)) throw sessionNotFound(id);
  return requireRight(session, caller, action);
}

/**
 * The session, if the caller may read it. It may be that of a run of the Runs API, whose log names it.
 * @throws EngineError `session_not_found`
 */
export async function readableSession(catalog: KernelCatalog, id: string, caller: Caller): Promise<SessionRow> {
  const session = isId(id) ? await catalog.sessions.get(id) : undefined;
  if (!session || !mayOnSession(caller, session, 'read')) throw sessionNotFound(id);
  return session;
}

/** @throws EngineError `forbidden` */
export function requireRight(session: SessionRow, caller: Caller, action: SessionAction): SessionRow {
  if (mayOnSession(caller, session, action)) return session;
  throw new EngineError('forbidden', refusalOnSession(caller, session, action));
}

export function sessionNotFound(id: string): EngineError {
  return new EngineError('session_not_found', `there is no session ${JSON.stringify(id)}`);
}

interface TurnSources {
  catalog: KernelCatalog;
  logs: TurnLogReader;
}

/** @throws TurnNotFound if the session has no such turn */
export async function requireTurn({ catalog, logs }: TurnSources, session: SessionRow, turnId: string): Promise<void> {
  if (!isId(turnId)) throw new TurnNotFound(turnId);
  const row = await catalog.turns.get(turnId);
  if (isTurnOf(session, row)) return;
  if (row?.session_id === session.id && row.archived) return; // it has ended in the queue
  // Whether a turn exists that is only requested, or missing from the index, is read from Temporal.
  const isUnindexed = !row || row.sequence === null;
  if (!isUnindexed || (await logs.start(turnId)).sessionId !== session.id) throw new TurnNotFound(turnId);
}

/** Whether the index has it as a turn of the session. */
export function isTurnOf(session: Pick<SessionRow, 'id'>, row: TurnRow | undefined): boolean {
  return row !== undefined && row.session_id === session.id && row.sequence !== null;
}

/** Whether the session has the turn. */
export async function hasTurn(sources: TurnSources, session: SessionRow, turnId: string): Promise<boolean> {
  return (await unlessNotFound(requireTurn(sources, session, turnId).then(() => true))) ?? false;
}
