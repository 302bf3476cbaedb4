import type { Client } from '@temporalio/client';
import type { Catalog } from '../catalog/catalog.ts';
import { DELETE_SESSION_WORKFLOW, deleteSessionWorkflowId } from '../core/temporal-names.ts';
import type { deleteSession } from '../../workflows/delete-session.ts';

interface Removing {
  client: Client;
  taskQueue: string;
}

const SESSION_BATCH_SIZE = 100;
const START_TIMEOUT_MS = 10_000;

/** Sees to it that a deleted session is removed; one that is being removed is left to it. */
export async function startRemoval({ client, taskQueue }: Removing, sessionId: string): Promise<void> {
  await client.connection.withDeadline(Date.now() + START_TIMEOUT_MS, () =>
    client.workflow.start<typeof deleteSession>(DELETE_SESSION_WORKFLOW, {
      workflowId: deleteSessionWorkflowId(sessionId),
      workflowIdConflictPolicy: 'USE_EXISTING',
      taskQueue,
      args: [{ sessionId }],
    }),
  );
}

/** Starts what is due: removals that nobody has started, and those that are to be done once more. */
export async function removeDeleted(
  { catalog, ...removing }: Removing & { catalog: Catalog },
  { now, stop }: { now: Date; stop: AbortSignal },
): Promise<void> {
  let after: Parameters<Catalog['sessions']['toRemove']>[1];
  do {
    const due = await catalog.sessions.toRemove(now.toISOString(), after, SESSION_BATCH_SIZE);
    for (const { id } of due) {
      if (stop.aborted) return;
      await startRemoval(removing, id);
    }
    const last = due.at(-1);
    after = last && { removalAt: last.removal_at ?? '', id: last.id };
  } while (after);
}
