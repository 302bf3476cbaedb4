import { TurnNotFound, type TurnLogReader } from '../engine/turn-log-reader.ts';
import { withLogContext } from '../telemetry/log-context.ts';
import { TURN_WORKFLOW, turnIdOf } from '../core/temporal-names.ts';
import type { Housekeeping } from './housekeeping.ts';

/** The ids of the turns that run, wait, or are queued. */
export async function runningTurns({
  client,
  taskQueue,
}: Pick<Housekeeping, 'client' | 'taskQueue'>): Promise<string[]> {
  const query = `WorkflowType = '${TURN_WORKFLOW}' AND TaskQueue = '${taskQueue}' AND ExecutionStatus = 'Running'`;
  return (
    await Array.fromAsync(client.workflow.list({ query }), ({ workflowId }) => turnIdOf(workflowId) ?? [])
  ).flat();
}

/**
 * Indexes those of `turnIds` that are missing from the index: a restored catalog lacks the turns since its backup.
 * Returns the turns that could not be read, whose sessions are therefore unknown.
 */
export async function indexTurns(
  { catalog, logs, turnIndex, log }: Pick<Housekeeping, 'catalog' | 'logs' | 'turnIndex' | 'log'>,
  turnIds: string[],
  stop: AbortSignal,
): Promise<string[]> {
  const unknown: string[] = [];
  for (const turnId of turnIds) {
    if (stop.aborted || (await catalog.turns.get(turnId))) continue;
    await withLogContext({ turnId }, async () => {
      try {
        if (await turnIndex.accept(await logs.start(turnId)))
          log.info('a turn that was missing from the catalog was indexed');
      } catch (error) {
        if (error instanceof TurnNotFound) return;
        unknown.push(turnId);
        log.warn({ err: error }, 'sessions do not expire and blobs are not deleted, because a turn could not be read');
      }
    });
  }
  return unknown;
}

/**
 * Removes turns whose histories Temporal has lost. They will never be archived, and the blobs of their sessions would
 * never be collected, because a turn that may run keeps them. Removes only turns that were created before `before`, since
 * when all of them must have ended, so that later ones are still known when Temporal's data is restored.
 */
export async function forgetLostTurns(
  { catalog, logs, log }: Pick<Housekeeping, 'catalog' | 'logs' | 'log'>,
  { before, stop }: { before: string; stop: AbortSignal },
): Promise<void> {
  const old = (await catalog.turns.unarchived()).filter(({ created_at: createdAt }) => createdAt < before);
  // Newest first: a turn that another turn follows is a part of that turn's conversation.
  for (const { id, session_id: sessionId } of old.toReversed()) {
    if (stop.aborted) return;
    if ((await exists(logs, id)) || (await catalog.turns.isFollowed(id))) continue;
    // The position of the session's next turn is counted from it.
    if ((await catalog.turnPositions.lastAt(sessionId))?.id === id) continue;
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
