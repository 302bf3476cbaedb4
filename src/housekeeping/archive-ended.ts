import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.ts';
import { TurnNotFound } from '../logs/turn-logs.ts';
import { inLogScope } from '../telemetry/log-scope.ts';
import { TURN_WORKFLOW, turnIdOf } from '../../workflows/ids.ts';

export interface Archiving {
  client: Client;
  taskQueue: string;
  catalog: Catalog;
  /** Gives whether there was something to archive. @throws TurnNotFound */
  archiveTurn: (turnId: string, signal: AbortSignal) => Promise<boolean>;
  log: Logger;
}

/** Sessions archive their turns within some seconds, and do so undisturbed. */
const LEFT_TO_SESSIONS_MS = 60_000;

/**
 * Archives the turns that have ended since, and those that are tried again; without `since`, all that Temporal still
 * has. Gives those that could not be archived.
 */
export async function archiveEnded(
  { client, taskQueue, catalog, archiveTurn, log }: Archiving,
  { since, again, now, stop }: { since: Date | undefined; again: string[]; now: Date; stop: AbortSignal },
): Promise<string[]> {
  const before = new Date(now.getTime() - LEFT_TO_SESSIONS_MS);
  const closed = since
    ? `CloseTime > '${since.toISOString()}' AND CloseTime < '${before.toISOString()}'`
    : 'CloseTime IS NOT NULL';
  const query = `WorkflowType = '${TURN_WORKFLOW}' AND TaskQueue = '${taskQueue}' AND ExecutionStatus != 'ContinuedAsNew' AND ${closed}`;
  const failed = new Set<string>();
  const archive = async (turnId: string): Promise<void> => {
    if (stop.aborted || failed.has(turnId)) return;
    const row = await catalog.turns.get(turnId);
    if (row?.archived) return;
    await inLogScope({ turnId, sessionId: row?.session_id }, async () => {
      try {
        if (await archiveTurn(turnId, stop)) log.info('a turn that its session had not archived was archived');
      } catch (error) {
        if (error instanceof TurnNotFound) {
          log.warn('a turn was deleted before it was archived');
          return;
        }
        // One turn that can't be read must not keep the others from the archive.
        failed.add(turnId);
        log.warn({ err: error }, 'a turn could not be archived; it is tried again');
      }
    });
  };
  for (const turnId of again) await archive(turnId);
  for await (const { workflowId } of client.workflow.list({ query })) {
    if (stop.aborted) break;
    const turnId = turnIdOf(workflowId);
    if (turnId !== undefined) await archive(turnId);
  }
  return [...failed];
}
