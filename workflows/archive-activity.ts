import { proxyActivities } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';

/**
 * Brings the catalog up to an entry of a running turn's log: at each pause, question and decision, for people, lists and
 * webhooks; after a continue-as-new, before Temporal deletes the previous run. Retried while the turn lasts. Its end is
 * archived by the session's worker.
 */
export const { archiveTurn } = proxyActivities<Pick<Activities, 'archiveTurn'>>({
  startToCloseTimeout: '10 minutes',
  heartbeatTimeout: '30 seconds',
  retry: { maximumInterval: '1 minute' },
});
