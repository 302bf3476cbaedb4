import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.ts';
import { KEY_LIFETIME_MS } from '../catalog/idempotency.ts';
import { TURN_WORKFLOW, turnIdOf } from '../../workflows/ids.ts';

const EVERY_MS = 3 * 60_000;

/** Turns that ended this long before the last sweep are looked at again: visibility lags behind, and clocks differ. */
const OVERLAP_MS = 10 * 60_000;

export interface HousekeepingOptions {
  client: Client;
  taskQueue: string;
  catalog: Catalog;
  archiveTurn: (turnId: string, signal: AbortSignal) => Promise<void>;
  log: Logger;
}

/**
 * From time to time: archives ended turns that their sessions have not, because they were terminated, deleted or failed,
 * and forgets old idempotency keys. The first sweep looks at all turns that Temporal still has.
 */
export function startHousekeeping(options: HousekeepingOptions): { stop: () => Promise<void> } {
  const stop = new AbortController();
  let since: Date | undefined;
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
    try {
      await options.catalog.idempotency.forget(new Date(started.getTime() - KEY_LIFETIME_MS).toISOString());
      if (await archiveEnded(options, since, stop.signal)) since = new Date(started.getTime() - OVERLAP_MS);
    } catch (error) {
      options.log.warn({ err: error }, 'the sweep for turns that are not archived failed; it is tried again');
    }
  }
}

/** False if some turn could not be archived, and has to be looked at again. */
export async function archiveEnded(
  { client, taskQueue, catalog, archiveTurn, log }: HousekeepingOptions,
  since: Date | undefined,
  stop: AbortSignal,
): Promise<boolean> {
  const closed = since ? `CloseTime > '${since.toISOString()}'` : 'CloseTime IS NOT NULL';
  const query = `WorkflowType = '${TURN_WORKFLOW}' AND TaskQueue = '${taskQueue}' AND ExecutionStatus != 'ContinuedAsNew' AND ${closed}`;
  let complete = true;
  for await (const { workflowId } of client.workflow.list({ query })) {
    if (stop.aborted) return false;
    const turnId = turnIdOf(workflowId);
    if (turnId === undefined || (await catalog.turns.get(turnId))?.archived) continue;
    try {
      await archiveTurn(turnId, stop);
      log.info({ turnId }, 'a turn that its session had not archived was archived');
    } catch (error) {
      // One turn that can't be read must not keep the others from the archive.
      complete = false;
      log.warn({ turnId, err: error }, 'a turn could not be archived; it is tried again');
    }
  }
  return complete;
}
