import { mayOnSession, type SessionAction } from '../../auth/rights.ts';
import type { ScheduleRun } from '../../features/schedules/schedule-run-rows.ts';
import type { Schedule } from '../../features/schedules/schedule-rows.ts';
import type { Caller } from '../../core/subject.ts';
import { EngineError } from '../../engine/errors.ts';
import { nextRunTimes, type Scheduling } from '../../features/schedules/schedules.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { rowToWire } from '../http/wire-fields.ts';
import { AGENTS_V2_ERRORS, invalidField } from './errors.ts';
import { toUuid } from './session-ids.ts';
import { scheduleResource, type ScheduleResource, type ScheduleRunResource } from './wire/schedule.ts';

/** The schedules of a page are described at the same time, this many. */
const CONCURRENCY = 10;

/**
 * The schedule, if the caller may do this to the sessions that it creates: only its owner may let it create sessions,
 * which have the owner's rights.
 * @throws ApiError `schedule_not_found`, or EngineError `forbidden`
 */
export async function authorizeSchedule(
  { catalog }: Pick<ApiContext, 'catalog'>,
  id: string,
  caller: Caller,
  action: SessionAction,
): Promise<Schedule> {
  const uuid = scheduleIdFrom(id);
  const schedule = await catalog.schedules.get(uuid);
  if (!schedule || !mayOnSession(caller, schedule, 'read')) throw scheduleNotFound(id);
  if (mayOnSession(caller, schedule, action)) return schedule;
  throw new EngineError('forbidden', `with the role ${caller.roles.join(', ')} you cannot do this to this schedule`);
}

export function scheduleNotFound(id: string): ApiError {
  return new ApiError(AGENTS_V2_ERRORS.schedule_not_found, `there is no schedule ${JSON.stringify(id)}`);
}

/** @throws ApiError `invalid_request` if the text is not a UUID */
function scheduleIdFrom(id: string): string {
  if (/^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i.test(id)) return id.toLowerCase();
  throw invalidField('schedule_id', 'must be a UUID');
}

/** What the engine needs to execute schedules. */
export function schedulingOf({ catalog, client, config }: ApiContext): Scheduling {
  return { catalog, client, taskQueue: config.temporal.taskQueue };
}

/** The schedules as this API shows them, with their next times. */
export async function toResources(context: ApiContext, schedules: Schedule[]): Promise<ScheduleResource[]> {
  const resources: ScheduleResource[] = [];
  for (let i = 0; i < schedules.length; i += CONCURRENCY) {
    const batch = schedules.slice(i, i + CONCURRENCY);
    resources.push(...(await Promise.all(batch.map((one) => toResource(context, one)))));
  }
  return resources;
}

/** A schedule that has just been written, or read. @throws ApiError `schedule_not_found` if it was deleted meanwhile */
export async function readResource(context: ApiContext, id: string): Promise<ScheduleResource> {
  const schedule = await context.catalog.schedules.get(id);
  if (!schedule) throw scheduleNotFound(id);
  return toResource(context, schedule);
}

async function toResource(context: ApiContext, schedule: Schedule): Promise<ScheduleResource> {
  const { cron, timezone, request } = schedule;
  return rowToWire(scheduleResource, {
    ...schedule,
    timing: { type: 'cron', expression: cron, timezone },
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- validated before it was stored
    session_request: JSON.parse(request) as ScheduleResource['session_request'],
    next_run_times: await nextRunTimes(context.client, schedule),
  });
}

export function runToResource(run: ScheduleRun): ScheduleRunResource {
  return { ...run, session_id: run.session_id && toUuid(run.session_id) };
}
