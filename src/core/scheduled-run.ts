/** What the workflow of a run is started with by a caller. Temporal's schedules give it nothing. */
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
 * How long after its time a run still creates a session. Also what Temporal makes up for after an outage: a report of
 * the morning is still wanted when the server was down for breakfast, but not a day's worth of runs in one minute.
 */
export const RUN_WITHIN_MS = 3_600_000;

/**
 * The time for which a run is, as ISO-8601: when its caller has triggered it, or that of its schedule, however late the
 * run starts.
 */
export function scheduledForOf(
  triggered: TriggeredRun | undefined,
  { scheduled, started }: { scheduled: Date | undefined; started: Date },
): string {
  return triggered?.triggeredAt ?? (scheduled ?? started).toISOString();
}
