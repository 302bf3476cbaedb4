import { isOwn, mayOnSession, readerOf, type Reader, type SessionAction } from '../../auth/rights.ts';
import type { KernelCatalog } from '../../catalog/catalog.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { isId, ulidIn } from '../../core/ids.ts';
import type { Caller } from '../../core/subject.ts';
import { addLogContext } from '../../telemetry/log-context.ts';
import { requireRight } from '../../engine/access.ts';
import { EngineError } from '../../engine/errors.ts';

const PREFIX = 'run_';

/** A run of the Runs API is the only turn of its own session: all three have the same ULID. */
export interface RunIds {
  runId: string;
  sessionId: string;
  turnId: string;
}

/** The ids of a run, from the id of the run, its session or its turn. */
export function runIdsOf(id: string): RunIds {
  const ulid = ulidIn(id);
  return { runId: PREFIX + ulid, sessionId: `ses_${ulid}`, turnId: `turn_${ulid}` };
}

/** A run, for one reader. */
export interface FoundRun extends RunIds {
  session: SessionRow;
  reader: Reader;
}

/**
 * The run, if the caller has the right to `action` on it. Runs are not found as sessions, and no other session is found
 * as a run.
 * @throws EngineError `run_not_found` or `forbidden`
 */
export async function authorizeRun(
  catalog: KernelCatalog,
  runId: string,
  caller: Caller,
  action: SessionAction,
): Promise<FoundRun> {
  const run = await findRun(catalog, runId, caller);
  if (!run || !mayOnSession(caller, run.session, 'read')) throw runNotFound(runId);
  requireRight(run.session, caller, action);
  addLogContext({ sessionId: run.sessionId, turnId: run.turnId });
  return run;
}

/** A run of the caller itself; undefined if it has none with this id. */
export async function ownRun(catalog: KernelCatalog, runId: string, caller: Caller): Promise<FoundRun | undefined> {
  const run = await findRun(catalog, runId, caller);
  return run && isOwn(caller, run.session) ? run : undefined;
}

async function findRun(catalog: KernelCatalog, runId: string, caller: Caller): Promise<FoundRun | undefined> {
  const ids = runIdsOf(runId);
  const session = runId.startsWith(PREFIX) && isId(runId) ? await catalog.sessions.get(ids.sessionId) : undefined;
  return session?.type === 'run' ? { ...ids, session, reader: readerOf(caller, session) } : undefined;
}

export function runNotFound(runId: string): EngineError {
  return new EngineError('run_not_found', `there is no run ${JSON.stringify(runId)}`);
}
