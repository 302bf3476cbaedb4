import type { SessionRow } from '../../catalog/schema.ts';
import type { ApiContext } from '../http/context.ts';
import { stateNow, type SessionReader } from './read-session.ts';
import { isFinal } from './session-state.ts';

/**
 * Cancels a session. Has no effect if the session has ended.
 * @param session from `authorizeSession`: the caller may cancel it
 */
export async function cancelIfOpen(context: ApiContext, reader: SessionReader, session: SessionRow): Promise<void> {
  const read = await reader.read(session);
  if (isFinal(stateNow(read).status)) return;
  await context.sessionQueue.cancel(session);
}
