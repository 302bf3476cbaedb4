import { z } from 'zod';
import { SCHEDULE_RUN_STATUSES } from '../../../features/schedules/tables.ts';
import { CronError, cronExpressions } from '../../../features/schedules/cron.ts';
import { line } from '../../../spec/bounds.ts';
import { integerQuery, numberedPageOf, repeatedQuery } from './query.ts';
import { sessionRequest } from './session.ts';

/** The shapes of schedules. */

const cronTiming = z
  .strictObject({
    type: z.literal('cron').default('cron'),
    expression: z
      .string()
      .max(256)
      .superRefine((expression, context) => {
        try {
          cronExpressions(expression);
        } catch (error) {
          if (!(error instanceof CronError)) throw error;
          context.addIssue({ code: 'custom', message: error.message });
        }
      })
      .describe('five fields: minute, hour, day of month, month, day of week'),
    timezone: z
      .string()
      .max(64)
      .transform((name, context) => {
        const zone = timeZoneNamed(name);
        if (zone !== undefined) return zone;
        context.addIssue({ code: 'custom', message: 'must be an IANA time zone, such as Europe/Paris' });
        return z.NEVER;
      })
      .meta({ override: { maxLength: 64, description: 'IANA time zone in which the expression is evaluated' } }),
  })
  .meta({ id: 'CronTiming' });

/** A time zone that all implementations support: no offsets, and no names that only one of them has. */
function timeZoneNamed(name: string): string | undefined {
  try {
    const { timeZone } = new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions();
    return timeZone === 'UTC' || Intl.supportedValuesOf('timeZone').includes(timeZone) ? timeZone : undefined;
  } catch {
    return undefined;
  }
}

const repeats = z
  .int()
  .min(1)
  .max(1_000_000)
  .nullable()
  .describe('how many sessions to create before the schedule is paused; null: it runs until it is paused or deleted');

const scheduleFields = {
  name: line({ min: 1, max: 255 }),
  description: line({ max: 10_000 }).nullable(),
  timing: cronTiming,
  session_request: sessionRequest.describe('what each session is created with; its agent is resolved at each run'),
  repeats,
};

/** The body that creates a schedule. */
export const createScheduleBody = z.strictObject({
  ...scheduleFields,
  description: scheduleFields.description.optional(),
  repeats: repeats.optional(),
});

/** The body that changes a schedule: what is absent stays. */
export const updateScheduleBody = z.strictObject(scheduleFields).partial();

export const pauseScheduleBody = z.strictObject({ note: line({ max: 1_000 }).nullish().describe('why') }).nullish();

const time = z.iso.datetime();

export const scheduleResource = z
  .object({
    id: z.uuid(),
    name: z.string(),
    description: z.string().nullable(),
    timing: z.object({ type: z.literal('cron'), expression: z.string(), timezone: z.string() }),
    session_request: z.looseObject({ agent: z.union([z.string(), z.looseObject({ name: z.string() })]) }),
    paused: z.boolean(),
    pause_note: z.string().nullable(),
    repeats: z.int().nullable(),
    sessions_created: z.int().describe('sessions that were created at their times, not by triggering the schedule'),
    next_run_times: z.array(time).describe('the next few; none while it is paused'),
    last_run_at: time.nullable(),
    created_at: time,
    updated_at: time,
  })
  .meta({ id: 'Schedule' });

export type ScheduleResource = z.infer<typeof scheduleResource>;

export const scheduleRunResource = z
  .object({
    id: z.uuid(),
    schedule_id: z.uuid(),
    status: z.enum(SCHEDULE_RUN_STATUSES),
    scheduled_for: time,
    session_id: z.guid().nullable(),
    error: z.string().nullable(),
    triggered_manually: z.boolean(),
    created_at: time,
  })
  .meta({ id: 'ScheduleRun' });

export type ScheduleRunResource = z.infer<typeof scheduleRunResource>;

export const schedulePage = numberedPageOf(scheduleResource).meta({ id: 'SchedulePage' });

export const scheduleRunPage = numberedPageOf(scheduleRunResource).meta({ id: 'ScheduleRunPage' });

const page = {
  page: integerQuery({ min: 1, max: 1_000_000 }).default(1),
  size: integerQuery({ min: 1, max: 100 }).default(10),
};

export const schedulesQuery = z.object({
  ...page,
  sort: repeatedQuery(z.enum(['created_at', '-created_at']), 1).default(['-created_at']),
});

export const scheduleRunsQuery = z.object({
  ...page,
  sort: repeatedQuery(z.enum(['scheduled_for', '-scheduled_for']), 1).default(['-scheduled_for']),
});
