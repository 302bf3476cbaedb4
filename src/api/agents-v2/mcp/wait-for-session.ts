import type { Caller } from '../../../core/subject.ts';
import { authorizeSession } from '../../../engine/access.ts';
import type { ApiContext } from '../../http/context.ts';
import { stateNow, type ReadSession, type SessionReader } from '../read-session.ts';
import type { SessionStatusName } from '../wire/session.ts';

/** MCP clients give up after a minute or less. */
export const MAX_WAIT_SECONDS = 24;

/** The states in which a session works; in all others it waits for its client or a person, or has ended. */
const WORKING = new Set<SessionStatusName>(['queued', 'pending', 'running']);

interface Wait {
  sessionId: string;
  caller: Caller;
  seconds: number;
  /** Aborts the wait, not the session. */
  signal: AbortSignal;
}

/** Reads a session once it has stopped working, or the time has passed. @throws EngineError if it was deleted */
export async function waitForSession(
  { catalog }: Pick<ApiContext, 'catalog'>,
  reader: SessionReader,
  { sessionId, caller, seconds, signal }: Wait,
): Promise<ReadSession> {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    // Each time, since the session may have been deleted.
    const read = await reader.read(await authorizeSession(catalog, sessionId, caller, 'read'));
    const timeoutMs = deadline - Date.now();
    if (timeoutMs <= 0 || signal.aborted) return read;
    if (!WORKING.has(stateNow(read).status)) {
      // An answer that was accepted a moment ago may not have reached this process yet.
      await read.view.refreshFromLog();
      if (!WORKING.has(stateNow(read).status)) return read;
    }
    await read.view.untilGrown(read.view.count, { timeoutMs, signal });
  }
}
