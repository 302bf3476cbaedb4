import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { inspect } from '../engine/turn-status.ts';
import type { TurnIndex } from '../engine/turn-index.ts';
import type { TurnLogReader } from '../engine/turn-log-reader.ts';
import { isUnavailable } from '../engine/unavailable.ts';

interface Expiring {
  catalog: Catalog;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  log: Logger;
}

/** Of a sweep, for each number of days; the others come with the next one. */
const MAX_SESSIONS = 1_000;

const DAY_MS = 86_400_000;

/** Deletes sessions in which nothing has happened for as long as their agents keep them (`config.retention_days`). */
export async function expireSessions(
  context: Expiring,
  { now, stop }: { now: Date; stop: AbortSignal },
): Promise<void> {
  const { retention } = context.catalog;
  for (const days of await retention.days()) {
    const before = new Date(now.getTime() - days * DAY_MS).toISOString();
    for (const session of await retention.idle({ days, before }, MAX_SESSIONS)) {
      if (stop.aborted) return;
      await expire(context, session, now.toISOString());
    }
  }
}

/** Waiting for somebody is activity too: an approval may take weeks, and must not be lost meanwhile. */
async function expire({ catalog, log, ...reading }: Expiring, session: SessionRow, now: string): Promise<void> {
  const { id, active_at: idleSince } = session;
  if (await isActive({ catalog, log, ...reading }, session)) {
    await catalog.sessions.touch(id, now);
  } else if (await catalog.sessions.delete(id, now, { idleSince })) {
    log.info({ sessionId: id, idleSince }, 'a session was deleted: its agent does not keep it for longer');
  }
}

/** Whether a turn of the session runs, or waits for an answer that can still be given. */
async function isActive({ catalog, logs, turnIndex, log }: Expiring, { id, closed }: SessionRow): Promise<boolean> {
  try {
    await turnIndex.reconcileRequests(id);
    if ((await catalog.turns.requests(id)).length > 0) return true;
    for (const turn of await catalog.turns.branchEnds(id)) {
      const seen = await inspect(turn.id, { catalog, logs });
      if (seen?.open || (seen && seen.pending.length > 0 && closed === 0)) return true;
    }
    return false;
  } catch (error) {
    if (isUnavailable(error)) throw error;
    // Nobody can say what it does; the others are not to wait for that.
    log.warn({ sessionId: id, err: error }, 'a session was kept, since a turn of it could not be read');
    return true;
  }
}
