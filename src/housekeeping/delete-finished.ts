import { isActive, type Expiring } from './expire-sessions.ts';

/** Sessions per sweep; the next sweep takes the remaining ones. */
const MAX_SESSIONS = 1_000;

/** When a session is looked at again that has begun again since its end. */
const POSTPONED_MS = 3_600_000;

/** Deletes sessions of the Agents API v2 some time after their end, as their requests say (`delete_after_min`). */
export async function deleteFinished(
  context: Expiring,
  { now, stop }: { now: Date; stop: AbortSignal },
): Promise<void> {
  const { catalog, log } = context;
  const at = now.toISOString();
  for (const session of await catalog.sessionRequests.toDelete(at, MAX_SESSIONS)) {
    if (stop.aborted) return;
    const { id, active_at: idleSince } = session;
    if (await isActive(context, session)) {
      const until = new Date(now.getTime() + POSTPONED_MS).toISOString();
      await catalog.sessionRequests.postponeDeletion(id, { now: at, until });
    } else if (await catalog.sessions.delete(id, at, { idleSince })) {
      log.info({ sessionId: id }, 'a session was deleted: the time for which it is kept after its end is over');
    }
  }
}
