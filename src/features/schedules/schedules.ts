import { randomUUID } from 'node:crypto';
import { ScheduleAlreadyRunning, ScheduleNotFoundError, type Client, type ScheduleOptions } from '@temporalio/client';
import type { Schedule, Schedules } from './schedule-rows.ts';
import { RUN_WITHIN_MS } from '../../core/scheduled-run.ts';
import { SCHEDULED_RUN_WORKFLOW, scheduledRunWorkflowId, temporalScheduleId } from '../../core/temporal-names.ts';
import { cronExpressions } from './cron.ts';
import { isTemporalUnavailable } from '../../temporal/errors.ts';
import type { scheduledRun } from '../../../workflows/scheduled-run.ts';
import { EngineError } from '../../engine/errors.ts';

export interface Scheduling {
  catalog: { schedules: Schedules };
  client: Client;
  taskQueue: string;
}

const TIMEOUT_MS = 10_000;

/** How long a caller waits for the run of a schedule that it has triggered. */
const RUN_MS = 20_000;

/** Number of upcoming times in a response. */
const NEXT_TIMES = 5;

/**
 * Creates or changes Temporal's schedule to match the row; deletes it if the row is deleted or missing. Concurrent
 * calls end with the newest revision: each one that finds another revision after its write starts over.
 */
export async function syncSchedule({ catalog, client, taskQueue }: Scheduling, id: string): Promise<void> {
  await client.connection.withDeadline(Date.now() + TIMEOUT_MS, async () => {
    for (;;) {
      const schedule = await catalog.schedules.find(id);
      if (!schedule || schedule.deleted_at !== null) {
        await unlessMissing(() => client.schedule.getHandle(temporalScheduleId(id)).delete());
        await catalog.schedules.remove(id);
        return;
      }
      await put({ client, taskQueue }, schedule);
      if (await catalog.schedules.synced(id, schedule.revision, new Date().toISOString())) return;
    }
  });
}

async function put({ client, taskQueue }: Omit<Scheduling, 'catalog'>, schedule: Schedule): Promise<void> {
  const handle = client.schedule.getHandle(temporalScheduleId(schedule.id));
  const options = optionsOf(schedule, taskQueue);
  const found = await unlessMissing(() => handle.describe());
  if (found?.state.note === noteOf(schedule.revision)) return;
  if (!found) {
    try {
      await client.schedule.create({ scheduleId: handle.scheduleId, ...options });
      return;
    } catch (error) {
      // Another process has created it, perhaps from an older revision.
      if (!(error instanceof ScheduleAlreadyRunning)) throw error;
    }
  }
  await unlessMissing(() => handle.update(() => options));
}

function optionsOf({ id, cron, timezone, paused, revision }: Schedule, taskQueue: string) {
  return {
    spec: { cronExpressions: cronExpressions(cron), timezone },
    action: {
      type: 'startWorkflow',
      workflowType: SCHEDULED_RUN_WORKFLOW,
      workflowId: scheduledRunWorkflowId(id),
      taskQueue,
    },
    // The runs themselves check whether a session of the schedule is open, since their workflows last only a moment.
    policies: { overlap: 'ALLOW_ALL', catchupWindow: RUN_WITHIN_MS },
    state: { paused, note: noteOf(revision) },
  } satisfies Omit<ScheduleOptions, 'scheduleId'>;
}

/** The note of Temporal's schedule, which contains its revision. */
function noteOf(revision: number): string {
  return `revision ${revision}`;
}

/** The next times of a schedule, in ISO-8601; none while it is paused. */
export async function nextRunTimes(client: Client, schedule: Schedule): Promise<string[]> {
  const { id, paused, repeats, sessions_created: created } = schedule;
  if (paused) return [];
  const describe = () => client.schedule.getHandle(temporalScheduleId(id)).describe();
  const found = await client.connection.withDeadline(Date.now() + TIMEOUT_MS, () => unlessMissing(describe));
  const left = repeats === null ? NEXT_TIMES : Math.min(Math.max(repeats - created, 0), NEXT_TIMES);
  return (found?.info.nextActionTimes ?? []).slice(0, left).map((time) => time.toISOString());
}

/**
 * Runs a schedule now, and waits until its run has ended. Returns the id of the run's workflow.
 * @throws EngineError `unavailable` if no worker has executed the run in time; it is executed later
 */
export async function triggerSchedule(
  { client, taskQueue }: Omit<Scheduling, 'catalog'>,
  scheduleId: string,
): Promise<string> {
  const workflowId = `${scheduledRunWorkflowId(scheduleId)}/${randomUUID()}`;
  try {
    await client.connection.withDeadline(Date.now() + RUN_MS, () =>
      client.workflow.execute<typeof scheduledRun>(SCHEDULED_RUN_WORKFLOW, {
        workflowId,
        taskQueue,
        args: [{ triggeredAt: new Date().toISOString() }],
      }),
    );
    return workflowId;
  } catch (error) {
    if (!isTemporalUnavailable(error)) throw error;
    throw new EngineError('unavailable', 'the run has not ended yet: see the runs of the schedule', { cause: error });
  }
}

async function unlessMissing<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof ScheduleNotFoundError) return undefined;
    throw error;
  }
}
