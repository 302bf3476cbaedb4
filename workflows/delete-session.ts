import { proxyActivities, sleep } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';

/**
 * Some calls to Temporal for each turn, and a session may have thousands. Another attempt goes on where one has stopped,
 * so a worker that is silent for long is not waited for.
 */
const { endSession, removeSession } = proxyActivities<Pick<Activities, 'endSession' | 'removeSession'>>({
  startToCloseTimeout: '1 hour',
  heartbeatTimeout: '5 seconds',
  // For ever: the session was deleted, and everything of it goes. If too many workers are lost, housekeeping begins anew.
  retry: { maximumInterval: '1 minute' },
});

/**
 * Who follows a turn that was ended with its session hears so, before the turn's history is gone: within milliseconds,
 * unless the machine is very busy.
 */
const READERS_GRACE = '5 seconds';

/** Removes what is left of a session that was deleted: from the catalog's point of view it is gone already. */
export async function deleteSession({ sessionId }: { sessionId: string }): Promise<void> {
  await endSession({ sessionId });
  await sleep(READERS_GRACE);
  await removeSession({ sessionId });
}
