import { ApplicationFailure, defineSearchAttributeKey } from '@temporalio/common';
import { proxyActivities, workflowInfo } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';
import { scheduledForOf, type TriggeredRun } from '../src/core/scheduled-run.ts';
import { scheduleIdOf } from '../src/core/temporal-names.ts';

/**
 * Reads what the session is to be created with, perhaps files from their URLs, and starts its first turn. Retried
 * without a limit of its own: the activity gives up when the time of the scheduled run is too long ago.
 */
const { runSchedule } = proxyActivities<Pick<Activities, 'runSchedule'>>({
  startToCloseTimeout: '5 minutes',
  heartbeatTimeout: '30 seconds',
  retry: { maximumInterval: '1 minute' },
});

/** Set by Temporal's schedules: the time for which the run was scheduled, however late it starts. */
const SCHEDULED_TIME = defineSearchAttributeKey('TemporalScheduledStartTime', 'DATETIME');

/**
 * Creates the session of a schedule at one of its times, and records the result. The schedule is known from the
 * workflow's id: arguments are encrypted for one workflow, and all runs of a Temporal schedule have the same.
 */
export async function scheduledRun(triggered?: TriggeredRun): Promise<void> {
  const { workflowId, typedSearchAttributes, startTime } = workflowInfo();
  const scheduleId = scheduleIdOf(workflowId);
  if (scheduleId === undefined) throw ApplicationFailure.nonRetryable(`${workflowId} names no schedule`);
  const scheduled = typedSearchAttributes.get(SCHEDULED_TIME);
  const scheduledFor = scheduledForOf(triggered, { scheduled, started: startTime });
  await runSchedule({ scheduleId, workflowId, scheduledFor, isManual: triggered !== undefined });
}
