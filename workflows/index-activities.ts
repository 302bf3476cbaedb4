import { proxyActivities } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';

/**
 * What a running turn has written of itself into the catalog:
 * - `archiveTurn`: the previous run's part of its log after a continue-as-new, before Temporal deletes that run;
 * - `indexActions`: what waits for people, and what they have decided.
 *
 * Retried while the turn lasts. Its end is archived by the session's worker, and that brings the index up to date, too.
 */
export const { archiveTurn, indexActions } = proxyActivities<Pick<Activities, 'archiveTurn' | 'indexActions'>>({
  startToCloseTimeout: '10 minutes',
  heartbeatTimeout: '30 seconds',
  retry: { maximumInterval: '1 minute' },
});
