import { isOwn, mayOnSession } from '../../auth/rights.ts';
import type { Catalog } from '../../features/catalog.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { isOfRun } from '../../catalog/session-types.ts';
import type { Caller } from '../../core/subject.ts';
import { authorizeSession, sessionNotFound } from '../../engine/access.ts';
import { ANONYMOUS } from '../http/authenticate.ts';
import { ApiError } from '../http/errors.ts';
import { fromUuid } from './session-ids.ts';

interface ReadableSession {
  session: SessionRow;
  /** The caller may read it only because it is shared. */
  isForeign: boolean;
}

/**
 * A session that the caller may read, by its UUID: by the caller's rights, or because it is shared.
 * @throws ApiError or EngineError
 */
export async function authorizeRead(catalog: Catalog, uuid: string, caller: Caller): Promise<ReadableSession> {
  const id = fromUuid(uuid);
  const found = await catalog.sessions.get(id);
  const session = found && isOfRun(found) ? undefined : found;
  if (session && mayOnSession(caller, session, 'read')) return { session, isForeign: false };
  if (session && (await catalog.sharedSessions.has(id))) return { session, isForeign: true };
  // The response is the same whether or not the session exists.
  if (caller === ANONYMOUS) throw new ApiError('unauthenticated', 'send your API key: Authorization: Bearer <key>');
  throw sessionNotFound(id);
}

/** A session of the caller itself, by its UUID; others are reported as missing. @throws ApiError or EngineError */
export async function authorizeOwner(catalog: Catalog, uuid: string, caller: Caller): Promise<SessionRow> {
  const session = await authorizeSession(catalog, fromUuid(uuid), caller, 'read');
  if (!isOwn(caller, session)) throw sessionNotFound(session.id);
  return session;
}
