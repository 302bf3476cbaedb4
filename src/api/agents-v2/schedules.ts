import { randomUUID } from 'node:crypto';
import { mayReadAll } from '../../auth/rights.ts';
import type { NewSchedule, ScheduleChange } from '../../features/schedules/schedule-rows.ts';
import type { Caller } from '../../core/subject.ts';
import { authorizeSession } from '../../engine/access.ts';
import { isComplete, runIdOf } from '../../features/schedules/scheduled-runs.ts';
import { syncSchedule, triggerSchedule } from '../../features/schedules/schedules.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError, toApiError } from '../http/errors.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { AGENTS_V2_ERRORS, invalidField } from './errors.ts';
import { ownerColumns } from '../../catalog/sessions.ts';
import { orderOf, rangeOf } from './catalog-queries.ts';
import { toList } from './create-session.ts';
import { exampleRequest, exampleSchedule, exampleScheduleRun } from './examples.ts';
import {
  authorizeSchedule,
  readResource,
  runToResource,
  scheduleNotFound,
  schedulingOf,
  toResources,
} from './read-schedule.ts';
import { resolveAgent } from './resolve-agent.ts';
import { filesToSend } from './message-input.ts';
import { fromUuid } from './session-ids.ts';
import {
  createScheduleBody,
  pauseScheduleBody,
  schedulePage,
  scheduleResource,
  scheduleRunPage,
  scheduleRunResource,
  scheduleRunsQuery,
  schedulesQuery,
  updateScheduleBody,
} from './wire/schedule.ts';
import type { SessionRequest } from './wire/session.ts';

const LIMITS = { perSubject: 100, total: 1_000 };

/** The JSON of a session request, in characters: a page of schedules has a hundred of them. */
const MAX_REQUEST = 256 * 1024;

/** The errors of a session request, which is checked as if its session was created now. */
const REQUEST_ERRORS = [
  'agent_not_found',
  'session_not_found',
  'invalid_agent',
  'feature_not_available',
  'invalid_data_uri',
  'content_too_large',
] as const;

const responseBody = json(scheduleResource, exampleSchedule);
const route = routesOf('Schedules');
const path = '/api/v2/schedules/:schedule_id';

/** Schedules, which create sessions at their times. */
export function scheduleRoutes(context: ApiContext): Route[] {
  const { catalog } = context;
  const change = async (id: string, to: Omit<ScheduleChange, 'updated_at'>) => {
    const isChanged = await catalog.schedules.change(id, { ...to, updated_at: new Date().toISOString() });
    if (!isChanged) throw scheduleNotFound(id);
    await syncSchedule(schedulingOf(context), id);
    return readResource(context, id);
  };
  return [
    route('post', '/api/v2/schedules', {
      id: 'createSchedule',
      requires: 'createSessions',
      largeBody: true,
      summary: 'Create a schedule, which creates a session at each of its times',
      description:
        'A session is created with the rights that the key has then with which `session_request` was written. None is created while the last ' +
        'one has not ended, or for a time that is more than an hour ago.',
      body: json(createScheduleBody, {
        name: exampleSchedule.name,
        timing: exampleSchedule.timing,
        session_request: exampleRequest,
      }),
      status: 201,
      response: responseBody,
      errors: ['too_many_schedules', ...REQUEST_ERRORS],
      handler: async ({ body, caller }) => {
        const request = await checkRequest(context, body.session_request, caller);
        const now = new Date().toISOString();
        const schedule: NewSchedule = {
          id: randomUUID(),
          name: body.name,
          description: body.description ?? null,
          request,
          cron: body.timing.expression,
          timezone: body.timing.timezone,
          repeats: body.repeats ?? null,
          ...ownerColumns(caller.subject),
          ...credentialOf(caller),
          created_at: now,
          updated_at: now,
          checked_at: now,
        };
        if (!(await catalog.schedules.insert(schedule, LIMITS))) {
          const message = `there are ${LIMITS.perSubject} schedules of yours, or ${LIMITS.total} in all: delete one`;
          throw new ApiError(AGENTS_V2_ERRORS.too_many_schedules, message);
        }
        try {
          await syncSchedule(schedulingOf(context), schedule.id);
        } catch (error) {
          // The client does not have the id of this schedule, and will create it again.
          await catalog.schedules.delete(schedule.id, now);
          throw error;
        }
        return readResource(context, schedule.id);
      },
    }),
    route('get', '/api/v2/schedules', {
      id: 'listSchedules',
      summary: 'The schedules that the caller may read, newest first',
      query: schedulesQuery,
      response: json(schedulePage, { items: [exampleSchedule], total: 1, page: 1 }),
      handler: async ({ query, caller }) => {
        const { items, total } = await catalog.schedules.list({
          subjectId: mayReadAll(caller) ? undefined : caller.subject.subjectId,
          order: orderOf(query),
          ...rangeOf(query),
        });
        return { items: await toResources(context, items), total, page: query.page };
      },
    }),
    route('get', path, {
      id: 'getSchedule',
      summary: 'A schedule',
      response: responseBody,
      handler: async ({ params, caller }) => {
        const { id } = await authorizeSchedule(context, params.schedule_id, caller, 'read');
        return readResource(context, id);
      },
    }),
    route('patch', path, {
      id: 'updateSchedule',
      requires: 'createSessions',
      largeBody: true,
      summary: 'Change a schedule',
      description: 'What is absent stays. If as many sessions as `repeats` were created already, it is paused.',
      body: json(updateScheduleBody, { timing: exampleSchedule.timing }),
      response: responseBody,
      errors: [...REQUEST_ERRORS],
      handler: async ({ params, body, caller }) => {
        const schedule = await authorizeSchedule(context, params.schedule_id, caller, 'send');
        const { name, description, timing, session_request: given, repeats } = body;
        return change(schedule.id, {
          ...(name !== undefined && { name }),
          ...(description !== undefined && { description }),
          ...(timing && { cron: timing.expression, timezone: timing.timezone }),
          ...(given && { request: await checkRequest(context, given, caller), ...credentialOf(caller) }),
          ...(repeats !== undefined && { repeats }),
          ...(repeats !== undefined && isComplete({ ...schedule, repeats }) && { paused: true }),
        });
      },
    }),
    route('delete', path, {
      id: 'deleteSchedule',
      summary: 'Delete a schedule with its runs',
      description: 'The sessions that it has created stay, and continue.',
      errors: ['forbidden'],
      handler: async ({ params, caller }) => {
        const { id } = await authorizeSchedule(context, params.schedule_id, caller, 'delete');
        await catalog.schedules.delete(id, new Date().toISOString());
        await syncSchedule(schedulingOf(context), id);
      },
    }),
    route('post', `${path}/pause`, {
      id: 'pauseSchedule',
      summary: 'Pause a schedule',
      description: 'It can be triggered nevertheless.',
      body: json(pauseScheduleBody, { note: 'Until the holidays are over' }),
      response: json(scheduleResource, { ...exampleSchedule, paused: true, next_run_times: [] }),
      errors: ['forbidden'],
      handler: async ({ params, body, caller }) => {
        const { id } = await authorizeSchedule(context, params.schedule_id, caller, 'cancel');
        return change(id, { paused: true, pause_note: body?.note ?? null });
      },
    }),
    route('post', `${path}/resume`, {
      id: 'resumeSchedule',
      requires: 'createSessions',
      summary: 'Resume a paused schedule',
      description: 'The times that have passed meanwhile are not made up for.',
      response: json(scheduleResource, exampleSchedule),
      handler: async ({ params, caller }) => {
        const schedule = await authorizeSchedule(context, params.schedule_id, caller, 'send');
        const { id, repeats, sessions_created: created } = schedule;
        if (isComplete(schedule)) {
          const message = `${created} of ${repeats} sessions were created; raise it to resume the schedule`;
          throw invalidField('repeats', message);
        }
        return change(id, { paused: false, pause_note: null });
      },
    }),
    route('post', `${path}/trigger`, {
      id: 'triggerSchedule',
      requires: 'createSessions',
      summary: 'Create a session now, even if the schedule is paused',
      description: 'None is created while the last one has not ended. The times of the schedule stay.',
      response: json(scheduleRunResource, { ...exampleScheduleRun, triggered_manually: true }),
      handler: async ({ params, caller }) => {
        const { id } = await authorizeSchedule(context, params.schedule_id, caller, 'send');
        const run = await catalog.scheduleRuns.get(runIdOf(await triggerSchedule(schedulingOf(context), id)));
        if (!run) throw scheduleNotFound(id);
        return runToResource(run);
      },
    }),
    route('get', `${path}/runs`, {
      id: 'listScheduleRuns',
      summary: 'What became of the last times of a schedule, newest first',
      description: 'The last thousand are kept.',
      query: scheduleRunsQuery,
      response: json(scheduleRunPage, { items: [exampleScheduleRun], total: 1, page: 1 }),
      handler: async ({ params, query, caller }) => {
        const { id } = await authorizeSchedule(context, params.schedule_id, caller, 'read');
        const { items, total } = await catalog.scheduleRuns.list(id, { order: orderOf(query), ...rangeOf(query) });
        return { items: items.map(runToResource), total, page: query.page };
      },
    }),
  ];
}

/** The credential by which the rights of a schedule are determined later. */
function credentialOf({ roles, keyId }: Caller): Pick<NewSchedule, 'roles' | 'key_id'> {
  return { roles, key_id: keyId ?? null };
}

/** The stored form of a request whose session could be created now. @throws ApiError or EngineError */
async function checkRequest(
  { catalog, ...context }: ApiContext,
  request: SessionRequest,
  caller: Caller,
): Promise<string> {
  const param = 'session_request';
  const messages = toList(request.messages);
  if (messages.length === 0) {
    const message = 'a schedule needs a task; a session without a message would wait for ever';
    throw invalidField(`${param}.messages`, message);
  }
  const json = JSON.stringify(request);
  if (json.length > MAX_REQUEST) {
    throw new ApiError('content_too_large', `${param}: may have at most ${MAX_REQUEST} characters as JSON`, { param });
  }
  try {
    filesToSend(messages);
    const { parent_session_id: parent } = request;
    if (parent) await authorizeSession(catalog, fromUuid(parent, 'parent_session_id'), caller, 'send');
    await resolveAgent({ catalog, ...context }, request, { caller, isStored: false });
  } catch (error) {
    const { kind, message, param: path } = toApiError(error);
    if (path === undefined) throw error;
    throw new ApiError(kind, message, { param: `${param}.${path}`, cause: error });
  }
  return json;
}
