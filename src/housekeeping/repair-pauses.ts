import type { Client } from '@temporalio/client';
import type { Catalog } from '../catalog/catalog.ts';
import { turnWorkflowId } from '../core/temporal-names.ts';
import { describeExecution } from '../temporal/describe-workflow.ts';

/**
 * Corrects which running turns the index has as paused: a worker that died may not have recorded the last change. A turn
 * is paused if its workflow has nothing in progress.
 */
export async function repairPauses(
  { catalog, client }: { catalog: Catalog; client: Client },
  { now, stop }: { now: Date; stop: AbortSignal },
): Promise<void> {
  for (const { id, paused } of await catalog.turns.mayPause()) {
    if (stop.aborted) return;
    const execution = await describeExecution(client, turnWorkflowId(id));
    if (execution?.status !== 'running') continue;
    const isPaused = execution.pendingActivities.length === 0 && !execution.workflowTask;
    if (isPaused !== (paused === 1)) await catalog.turns.setPaused(id, isPaused, now.toISOString());
  }
}
