import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.ts';
import { TurnNotFound, type TurnLogReader } from '../engine/turn-log-reader.ts';

interface Forgetting {
  catalog: Catalog;
  logs: TurnLogReader;
  log: Logger;
}

/**
 * Forgets turns whose Temporal was lost: nothing more will come to the archive of them, and their sessions' blobs, which
 * are not collected while a turn may run, would be kept for their sake. Only those from
 * before a time since which none can run any more, so that a Temporal that is put back finds the others.
 */
export async function forgetLostTurns(
  { catalog, logs, log }: Forgetting,
  { before, stop }: { before: string; stop: AbortSignal },
): Promise<void> {
  const old = (await catalog.turns.unarchived()).filter(({ created_at: createdAt }) => createdAt < before);
  // The newest first: one that others have followed stands in their conversation.
  for (const { id, session_id: sessionId } of old.toReversed()) {
    if (stop.aborted) return;
    if ((await exists(logs, id)) || (await catalog.turns.isFollowed(id))) continue;
    await catalog.turns.remove(id);
    log.warn({ turnId: id, sessionId }, 'a turn that Temporal has lost was forgotten');
  }
}

/** One that can't be read now may exist. */
async function exists(logs: TurnLogReader, turnId: string): Promise<boolean> {
  try {
    await logs.start(turnId);
    return true;
  } catch (error) {
    return !(error instanceof TurnNotFound);
  }
}
