import { mayOnSession, type SessionAction } from '../auth/rights.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { isId } from '../core/ids.ts';
import type { Caller } from '../core/subject.ts';
import { addLogContext } from '../telemetry/log-context.ts';
import { requireRight } from './access.ts';
import { EngineError } from './errors.ts';

const PREFIX = 'run_';

/** A run is the only turn of a session of its own: all three have the same ULID. */
export interface RunIds {
  runId: string;
  sessionId: string;
  turnId: string;
}

/** The ids of a run, by its own or by that of its session or its turn. */
export function runIdsOf(id: string): RunIds {
  const ulid = id.slice(id.indexOf('_') + 1);
  return { runId: PREFIX + ulid, sessionId: `ses_${ulid}`, turnId: `turn_${ulid}` };
}

export interface Run extends RunIds {
  session: SessionRow;
}

/**
 * The run, if the caller has the right to `action` on it. Runs are not found as sessions, and no other session is found
 * as a run.
 * @throws EngineError `run_not_found` or `forbidden`
 */
export async function authorizeRun(
  catalog: Catalog,
  runId: string,
  caller: Caller,
  action: SessionAction,
): Promise<Run> {
  const ids = runIdsOf(runId);
  const session = runId.startsWith(PREFIX) && isId(runId) ? await catalog.sessions.get(ids.sessionId) : undefined;
  if (session?.type !== 'run' || !mayOnSession(caller, session, 'read')) {
    throw runNotFound(runId);
  }
  addLogContext({ sessionId: ids.sessionId, turnId: ids.turnId });
  return { ...ids, session: requireRight(session, caller, action) };
}

export function runNotFound(runId: string): EngineError {
  return new EngineError('run_not_found', `there is no run ${JSON.stringify(runId)}`);
}
