import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.ts';
import type { TurnIndex } from '../engine/turn-index.ts';
import { TurnNotFound, type TurnLogReader } from '../engine/turn-log-reader.ts';
import { withLogContext } from '../telemetry/log-context.ts';
import { TURN_WORKFLOW, turnIdOf } from '../core/temporal-names.ts';

interface Indexing {
  catalog: Catalog;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  log: Logger;
}

/** The ids of the turns that run, wait, or are queued. */
export async function runningTurns({ client, taskQueue }: { client: Client; taskQueue: string }): Promise<string[]> {
  const query = `WorkflowType = '${TURN_WORKFLOW}' AND TaskQueue = '${taskQueue}' AND ExecutionStatus = 'Running'`;
  const running: string[] = [];
  for await (const { workflowId } of client.workflow.list({ query })) {
    const turnId = turnIdOf(workflowId);
    if (turnId !== undefined) running.push(turnId);
  }
  return running;
}

/**
 * Indexes those of `turnIds` that are missing from the index: a restored catalog lacks the turns since its backup.
 * Returns the turns that could not be read, whose sessions are therefore unknown.
 */
export async function indexTurns(
  { catalog, logs, turnIndex, log }: Indexing,
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
