import { proxyActivities, sleep } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';

/** Whatever is away comes back: the session was deleted, and everything of it goes. */
const retry = { maximumInterval: '1 minute' };

/** A few quick calls to Temporal. */
const { endSession } = proxyActivities<Pick<Activities, 'endSession'>>({ startToCloseTimeout: '5 minutes', retry });

/** Two calls to Temporal for each turn, and a session may have thousands; another attempt goes on where one has stopped. */
const { removeSession } = proxyActivities<Pick<Activities, 'removeSession'>>({
  startToCloseTimeout: '1 hour',
  heartbeatTimeout: '30 seconds',
  retry,
});

/** Who follows a turn that was ended with its session hears so, before the turn's history is gone. */
const READERS_GRACE = '2 seconds';

/** Removes what is left of a session that was deleted: from the catalog's point of view it is gone already. */
export async function deleteSession({ sessionId }: { sessionId: string }): Promise<void> {
  await endSession({ sessionId });
  await sleep(READERS_GRACE);
  await removeSession({ sessionId });
}
