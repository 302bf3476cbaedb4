/** The input of a scheduled run that a caller triggers. Temporal's schedules start it without input. */
export interface TriggeredRun {
  /** ISO-8601. */
  triggeredAt: string;
}

/** A time at which a schedule is due. */
export interface ScheduledTime {
  scheduleId: string;
  /** The id of its workflow, which only repetitions of this run have. */
  workflowId: string;
  /** ISO-8601. */
  scheduledFor: string;
  isManual: boolean;
}

/**
 * How long after its time a scheduled run still creates a session, and how far back Temporal catches up after an
 * outage: a morning's report is still useful an hour late, but not a day's worth of runs in one minute.
 */
export const RUN_WITHIN_MS = 3_600_000;

/**
 * The time that a scheduled run is for, as ISO-8601: when its caller has triggered it, or its time in the schedule,
 * however late it starts.
 */
export function scheduledForOf(
  triggered: TriggeredRun | undefined,
  { scheduled, started }: { scheduled: Date | undefined; started: Date },
): string {
  return triggered?.triggeredAt ?? (scheduled ?? started).toISOString();
}
