import type { SessionRow } from '../catalog/schema.ts';
import { isUnavailable } from '../engine/unavailable.ts';
import type { Housekeeping, Sweep } from './housekeeping.ts';

type Expiring = Pick<Housekeeping, 'catalog' | 'logs' | 'turnIndex' | 'log'>;

/** Sessions per sweep and retention period; the next sweep takes the remaining ones. */
const MAX_SESSIONS = 1_000;

const DAY_MS = 86_400_000;

/** A session that is active again after its end is checked again after this time. */
const POSTPONED_MS = 3_600_000;

/** Deletes sessions that were idle for their agents' retention period (`config.retention_days`). */
export async function expireSessions(context: Expiring, { now, stop }: Sweep): Promise<void> {
  const { retention } = context.catalog;
  for (const days of await retention.days()) {
    const before = new Date(now.getTime() - days * DAY_MS).toISOString();
    for (const session of await retention.idle({ days, before }, MAX_SESSIONS)) {
      if (stop.aborted) return;
      await expire(context, session, now.toISOString());
    }
  }
}

/** Deletes sessions of the Agents API v2 some time after their end, as set in their requests (`delete_after_min`). */
export async function deleteFinished(context: Expiring, { now, stop }: Sweep): Promise<void> {
  const { catalog, log } = context;
  const at = now.toISOString();
  for (const session of await catalog.sessionRequests.toDelete(at, MAX_SESSIONS)) {
    if (stop.aborted) return;
    const { id, active_at: idleSince } = session;
    if (await isActive(context, session)) {
      const until = new Date(now.getTime() + POSTPONED_MS).toISOString();
      await catalog.sessionRequests.postponeDeletion(id, { now: at, until });
    } else if (await catalog.sessions.delete(id, at, { idleSince })) {
      log.info({ sessionId: id }, 'a session was deleted: the time for which it is kept after its end has passed');
    }
  }
}

/** Deletes the session unless it is active. A pending call counts as activity: an approval may take weeks. */
async function expire({ catalog, log, ...reading }: Expiring, session: SessionRow, now: string): Promise<void> {
  const { id, active_at: idleSince } = session;
  if (await isActive({ catalog, log, ...reading }, session)) {
    await catalog.sessions.touch(id, now);
  } else if (await catalog.sessions.delete(id, now, { idleSince })) {
    log.info({ sessionId: id, idleSince }, 'a session was deleted: its retention period has ended');
  }
}

/** Whether a turn of the session is running, or waits for an answer that the session still accepts. */
async function isActive({ catalog, logs, turnIndex, log }: Expiring, { id, closed }: SessionRow): Promise<boolean> {
  try {
    await turnIndex.reconcileRequests(id);
    if ((await catalog.turns.requests(id)).length > 0) return true;
    for (const turn of await catalog.turns.branchEnds(id)) {
      const status = await logs.status(turn.id);
      if (status?.open || (status && status.pending.length > 0 && closed === 0)) return true;
    }
    return false;
  } catch (error) {
    if (isUnavailable(error)) throw error;
    // The status of the session is unknown: it is kept, and does not block the others.
    log.warn({ sessionId: id, err: error }, 'a session was kept, because one of its turns could not be read');
    return true;
  }
}
