import { isComplete, runIdOf } from '../../engine/scheduled-runs.ts';
import { syncSchedule, triggerSchedule } from '../../engine/schedules.ts';
import type { ScheduleChange } from '../../catalog/schedules.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { json, route, type Route } from '../http/route.ts';
import { exampleSchedule, exampleScheduleRun } from './examples.ts';
import { authorizeSchedule, readResource, runToResource, scheduleNotFound, schedulingOf } from './read-schedule.ts';
import {
  pauseScheduleBody,
  scheduleResource,
  scheduleRunPage,
  scheduleRunResource,
  scheduleRunsQuery,
} from './wire/schedule.ts';

const tag = 'Schedules';
const path = '/api/v2/schedules/:schedule_id';

/** What can be done with a schedule, and what it has done. */
export function scheduleActionRoutes(context: ApiContext): Route[] {
  const { catalog } = context;
  const change = async (id: string, to: Omit<ScheduleChange, 'updated_at'>) => {
    const isChanged = await catalog.schedules.change(id, { ...to, updated_at: new Date().toISOString() });
    if (!isChanged) throw scheduleNotFound(id);
    await syncSchedule(schedulingOf(context), id);
    return readResource(context, id);
  };
  return [
    route(
      'post',
      `${path}/pause`,
      {
        id: 'pauseSchedule',
        tag,
        summary: 'Pause a schedule',
        description: 'It can be triggered nevertheless.',
        body: json(pauseScheduleBody, { note: 'Until the holidays are over' }),
        answer: json(scheduleResource, { ...exampleSchedule, paused: true, next_run_times: [] }),
        errors: ['forbidden', 'schedule_not_found'],
      },
      async ({ params, body, caller }) => {
        const { id } = await authorizeSchedule(context, params.schedule_id, caller, 'cancel');
        return change(id, { paused: true, pause_note: body?.note ?? null });
      },
    ),
    route(
      'post',
      `${path}/resume`,
      {
        id: 'resumeSchedule',
        requires: 'createSessions',
        tag,
        summary: 'Resume a paused schedule',
        description: 'The times that have passed meanwhile are not made up for.',
        answer: json(scheduleResource, exampleSchedule),
        errors: ['schedule_not_found'],
      },
      async ({ params, caller }) => {
        const schedule = await authorizeSchedule(context, params.schedule_id, caller, 'send');
        const { id, repeats, sessions_created: created } = schedule;
        if (isComplete(schedule)) {
          const message = `repeats: ${created} of ${repeats} sessions were created; raise it to resume the schedule`;
          throw new ApiError('invalid_request', message, { param: 'repeats' });
        }
        return change(id, { paused: false, pause_note: null });
      },
    ),
    route(
      'post',
      `${path}/trigger`,
      {
        id: 'triggerSchedule',
        requires: 'createSessions',
        tag,
        summary: 'Create a session now, even if the schedule is paused',
        description: 'None is created while the last one has not ended. The times of the schedule stay.',
        answer: json(scheduleRunResource, { ...exampleScheduleRun, triggered_manually: true }),
        errors: ['schedule_not_found'],
      },
      async ({ params, caller }) => {
        const { id } = await authorizeSchedule(context, params.schedule_id, caller, 'send');
        const run = await catalog.scheduleRuns.get(runIdOf(await triggerSchedule(schedulingOf(context), id)));
        if (!run) throw scheduleNotFound(id);
        return runToResource(run);
      },
    ),
    route(
      'get',
      `${path}/runs`,
      {
        id: 'listScheduleRuns',
        tag,
        summary: 'What became of the last times of a schedule, newest first',
        description: 'The last thousand are kept.',
        query: scheduleRunsQuery,
        answer: json(scheduleRunPage, { items: [exampleScheduleRun], total: 1, page: 1 }),
        errors: ['schedule_not_found'],
      },
      async ({ params, query: { page, size, sort }, caller }) => {
        const { id } = await authorizeSchedule(context, params.schedule_id, caller, 'read');
        const order = sort[0] === 'scheduled_for' ? 'asc' : 'desc';
        const { items, total } = await catalog.scheduleRuns.list(id, { order, offset: (page - 1) * size, limit: size });
        return { items: items.map(runToResource), total, page };
      },
    ),
  ];
}
