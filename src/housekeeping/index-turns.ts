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

/** The turns that run. */
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
 * Enters those of some turns that the index does not know: a catalog that was restored has missed what was asked for
 * after its backup. Gives those that could not be read, so that nobody knows to which session they belong.
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
          log.info('a turn that the catalog had missed was indexed');
      } catch (error) {
        if (error instanceof TurnNotFound) return;
        unknown.push(turnId);
        log.warn({ err: error }, 'no session expires and no blob is deleted, since a turn could not be read');
      }
    });
  }
  return unknown;
}
