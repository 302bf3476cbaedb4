import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { KEY_LIFETIME_MS } from '../catalog/idempotency.ts';
import { inLogScope } from '../telemetry/log-scope.ts';
import type { TurnIndex } from '../logs/turn-index.ts';
import type { TurnLogs } from '../logs/turn-logs.ts';
import { TURN_WORKFLOW, turnIdOf } from '../../workflows/ids.ts';
import { collectBlobs } from './collect-blobs.ts';
import { expireSessions } from './expire-sessions.ts';
import { removeDeleted } from './remove-deleted.ts';

const EVERY_MS = 3 * 60_000;

/** Turns that ended this long before the last sweep are looked at again: visibility lags behind, and clocks differ. */
const OVERLAP_MS = 10 * 60_000;

interface HousekeepingOptions extends Archiving {
  blobs: BlobStore;
  logs: TurnLogs;
  turnIndex: TurnIndex;
}

interface Archiving {
  client: Client;
  taskQueue: string;
  catalog: Catalog;
  archiveTurn: (turnId: string, signal: AbortSignal) => Promise<void>;
  log: Logger;
}

/**
 * From time to time: archives ended turns that their sessions have not, because they were terminated, deleted or failed;
 * deletes sessions that are kept no longer, and has deleted ones removed; deletes blobs that nothing refers to; forgets
 * old idempotency keys. The first sweep looks at all turns that Temporal still has. Every worker does it.
 */
export function startHousekeeping(options: HousekeepingOptions): { stop: () => Promise<void> } {
  const stop = new AbortController();
  let since: Date | undefined;
  let failed: string[] = [];
  let running = sweep();
  const timer = setInterval(() => {
    running = running.then(sweep);
  }, EVERY_MS);
  return {
    stop: async () => {
      clearInterval(timer);
      stop.abort();
      await running;
    },
  };

  async function sweep(): Promise<void> {
    const started = new Date();
    const when = { now: started, stop: stop.signal };
    try {
      await options.catalog.idempotency.forget(new Date(started.getTime() - KEY_LIFETIME_MS).toISOString());
      await expireSessions(options, when);
      await removeDeleted(options, when);
      failed = await archiveEnded(options, { since, again: failed, stop: stop.signal });
      since = new Date(started.getTime() - OVERLAP_MS);
      // Last, for only the archive says what is referred to.
      await collectBlobs(options, when);
    } catch (error) {
      options.log.warn({ err: error }, 'housekeeping failed; it is tried again');
    }
  }
}

/** Archives the turns that have ended since, and those that are tried again. Gives those that could not be archived. */
export async function archiveEnded(
  { client, taskQueue, catalog, archiveTurn, log }: Archiving,
  { since, again, stop }: { since: Date | undefined; again: string[]; stop: AbortSignal },
): Promise<string[]> {
  const closed = since ? `CloseTime > '${since.toISOString()}'` : 'CloseTime IS NOT NULL';
  const query = `WorkflowType = '${TURN_WORKFLOW}' AND TaskQueue = '${taskQueue}' AND ExecutionStatus != 'ContinuedAsNew' AND ${closed}`;
  const failed = new Set<string>();
  const archive = async (turnId: string): Promise<void> => {
    if (stop.aborted || failed.has(turnId)) return;
    const row = await catalog.turns.get(turnId);
    if (row?.archived) return;
    await inLogScope({ turnId, sessionId: row?.session_id }, async () => {
      try {
        await archiveTurn(turnId, stop);
        log.info('a turn that its session had not archived was archived');
      } catch (error) {
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
