import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.ts';
import { TurnNotFound, type TurnLogReader } from '../engine/turn-log-reader.ts';

interface Forgetting {
  catalog: Catalog;
  logs: TurnLogReader;
  log: Logger;
}

/**
 * Removes turns whose histories Temporal has lost. They will never be archived, and the blobs of their sessions would
 * never be collected, because a turn that may run keeps them. Removes only turns that were created before `before`, since
 * when all of them must have ended, so that later ones are still known when Temporal's data is restored.
 */
export async function forgetLostTurns(
  { catalog, logs, log }: Forgetting,
  { before, stop }: { before: string; stop: AbortSignal },
): Promise<void> {
  const old = (await catalog.turns.unarchived()).filter(({ created_at: createdAt }) => createdAt < before);
  // Newest first: a turn that another turn follows is a part of that turn's conversation.
  for (const { id, session_id: sessionId } of old.toReversed()) {
    if (stop.aborted) return;
    if ((await exists(logs, id)) || (await catalog.turns.isFollowed(id))) continue;
    // The place of the session's next turn is counted from it.
    if ((await catalog.turnPlaces.lastAt(sessionId))?.id === id) continue;
    await catalog.turns.remove(id);
    log.warn({ turnId: id, sessionId }, 'a turn whose history Temporal has lost was removed');
  }
}

/** True also for a turn that cannot be read now. */
async function exists(logs: TurnLogReader, turnId: string): Promise<boolean> {
  try {
    await logs.start(turnId);
    return true;
  } catch (error) {
    return !(error instanceof TurnNotFound);
  }
}
