import { isoTime } from '../../core/text.ts';
import type { Feature } from '../feature.ts';

/** How long deliveries are kept, from their creation; they are retried for a day. */
const KEPT_MS = 3 * 86_400_000;

export const WEBHOOKS: Feature = {
  tablesOfSessions: ['delivery_lanes', 'deliveries'],
  sweep: async ({ catalog, deliverer }, { now }) => {
    // For deliveries whose hint was lost.
    deliverer.wake();
    await catalog.deliveries.forget(isoTime(now.getTime() - KEPT_MS));
  },
};
