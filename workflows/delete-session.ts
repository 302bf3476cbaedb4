import { proxyActivities, sleep } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';

/**
 * Both make several calls to Temporal for each turn, and a session may have thousands of turns. An attempt continues
 * where the previous one has stopped, so a short heartbeat time-out costs little.
 */
const { endSession, removeSession } = proxyActivities<Pick<Activities, 'endSession' | 'removeSession'>>({
  startToCloseTimeout: '1 hour',
  heartbeatTimeout: '5 seconds',
  // Retried for ever, since the data of a deleted session must be removed. After too many lost attempts the activity
  // fails, and housekeeping starts the removal again.
  retry: { maximumInterval: '1 minute' },
});

/**
 * How long the histories of terminated turns are kept, so that readers that follow them see the end first. That takes
 * milliseconds, unless the machine is very busy.
 */
const READERS_GRACE = '5 seconds';

/** Removes the data of a deleted session, which no longer exists in the catalog. */
export async function deleteSession({ sessionId }: { sessionId: string }): Promise<void> {
  await endSession({ sessionId });
  await sleep(READERS_GRACE);
  await removeSession({ sessionId });
}
