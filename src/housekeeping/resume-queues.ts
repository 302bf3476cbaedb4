import type { Client } from '@temporalio/client';
import type { Catalog } from '../catalog/catalog.ts';
import { startSession } from '../engine/session-commands.ts';

interface Resuming {
  client: Client;
  taskQueue: string;
  catalog: Catalog;
}

/**
 * Starts the sessions in whose queues turns wait, unless they run. One whose workflow has failed, or was terminated by an
 * operator, is otherwise started again by its next command, which may never come.
 */
export async function resumeQueues({ catalog, ...starting }: Resuming, stop: AbortSignal): Promise<void> {
  for (const sessionId of await catalog.turns.sessionsWithQueue()) {
    if (stop.aborted) return;
    await startSession(starting, sessionId);
  }
}
