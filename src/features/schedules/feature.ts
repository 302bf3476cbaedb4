import type { Feature } from '../feature.ts';
import { syncSchedule } from './schedules.ts';

/** The number of schedules per sweep; the next sweep syncs the others. */
const MAX_SCHEDULES = 200;

/** How often a schedule is checked in Temporal, which may have lost it with its data. */
const CHECK_MS = 3_600_000;

export const SCHEDULES: Feature = {
  /**
   * Makes Temporal's schedules match the catalog: those whose sync was interrupted by a crash, and all others when the
   * process has started and once per hour.
   */
  sweepAfterTurns: async ({ log, ...scheduling }, { now, began, stop }) => {
    const { schedules } = scheduling.catalog;
    const checkedBefore = new Date(Math.max(now.getTime() - CHECK_MS, began.getTime())).toISOString();
    for (const id of await schedules.toSync(checkedBefore, MAX_SCHEDULES)) {
      if (stop.aborted) return;
      try {
        await syncSchedule(scheduling, id);
      } catch (error) {
        log.warn({ scheduleId: id, err: error }, 'a schedule could not be synced with Temporal; retrying');
        await schedules.postpone(id, now.toISOString());
      }
    }
  },
};
