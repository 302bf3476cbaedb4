import type { Client } from '@temporalio/client';
import type { Catalog } from '../catalog/catalog.ts';
import { startRemoval } from '../engine/session-commands.ts';

interface Removing {
  client: Client;
  taskQueue: string;
}

const SESSION_BATCH_SIZE = 100;

/** Starts the removals that are due: those that were not started, and those that are to be repeated. */
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
