import { z } from 'zod';
import { bounded, identifier } from '../../../spec/bounds.ts';
import { agent } from './agent.ts';
import { agentReference } from './names.ts';
import { metrics, modelUsage, sessionEvent, toolCallRequest } from './events.ts';
import { firstMessages, userMessage } from './messages.ts';
import { numberedPageOf } from './query.ts';

/** The shapes of sessions. */

/** The states of a session; the last four are final. */
export const SESSION_STATUSES = [
  'queued',
  'pending',
  'running',
  'paused',
  'idle',
  'awaiting_tool_results',
  'completed',
  'failed',
  'timed_out',
  'interrupted',
] as const;

export type SessionStatusName = (typeof SESSION_STATUSES)[number];

export const ERROR_CODES = ['environment_error', 'no_answer', 'answer_validation', 'timeout', 'internal'] as const;

function isTimeZone(text: string): boolean {
  try {
    return Boolean(new Intl.DateTimeFormat('en', { timeZone: text }));
  } catch {
    return false;
  }
}

/** The body that creates a session. */
export const sessionRequest = z
  .strictObject({
    agent: z.union([agentReference, agent]).describe('the name of a registered agent, or a definition'),
    messages: firstMessages.describe('the task; without it, the session waits for a message'),
    max_steps: z
      .int()
      .min(1)
      .max(10_000)
      .nullish()
      .describe('model calls per answer, after which the agent is asked for its answer'),
    max_time_s: z
      .number()
      .positive()
      .max(31_536_000)
      .nullish()
      .describe('seconds of work per answer, after which the agent is asked for its answer; waiting does not count'),
    idle_timeout_s: z
      .int()
      .min(1)
      .max(31_536_000)
      .nullish()
      .describe('how long the session waits for a message after each answer; null: the answer ends it'),
    timezone: z
      .string()
      .max(64)
      .refine(isTimeZone, 'must be a time zone such as Europe/Paris')
      .nullish()
      .describe('the time zone of the user, which the agent is told'),
    delete_after_min: z
      .int()
      .min(1)
      .max(52_560_000)
      .nullable()
      .default(43_200)
      .describe('minutes after its end until the session is deleted; null: never'),
    delete_screenshot_after_min: z.int().min(1).max(52_560_000).nullable().default(43_200),
    queue: z.boolean().default(true).describe('wait for a slot if all are taken; false: such a request gets 429'),
    group_id: identifier.nullish(),
    parent_session_id: z.string().max(64).nullish(),
    overrides: bounded(z.record(z.string().max(1_024), z.unknown()), 100)
      .default({})
      .describe('values by their paths in the request, whose agent has been resolved'),
  })
  .meta({ id: 'SessionRequest' });

export type SessionRequest = z.infer<typeof sessionRequest>;

export const sessionStatus = z
  .object({
    status: z.enum(SESSION_STATUSES),
    error: z.string().nullable(),
    error_code: z.enum(ERROR_CODES).nullable(),
    outcome: z.null().describe("the agent's own judgement; agents of this server give none"),
    steps: z.int(),
    usage_per_model: z.array(modelUsage),
    subagent_session_ids: z.array(z.guid()),
    pending_tool_calls: z.array(toolCallRequest),
  })
  .meta({ id: 'SessionStatus' });

export type SessionStatus = z.infer<typeof sessionStatus>;

/** The request that created a session, with the agent resolved and the overrides applied. */
const resolvedRequest = z.looseObject({
  agent: z.looseObject({ name: z.string() }),
  messages: z.array(userMessage),
});

export const sessionResource = z
  .object({
    id: z.guid(),
    request: resolvedRequest,
    status: sessionStatus,
    agent_revision: z.int().nullable(),
    agent_view_url: z.string().nullable(),
    latest_answer: z.unknown(),
    created_at: z.iso.datetime(),
    started_at: z.iso.datetime().nullable(),
    finished_at: z.iso.datetime().nullable(),
  })
  .meta({ id: 'Session' });

export type SessionResource = z.infer<typeof sessionResource>;

export const sessionChanges = z
  .object({
    status: z.enum(SESSION_STATUSES),
    started_at: z.iso.datetime().nullable(),
    finished_at: z.iso.datetime().nullable(),
    error: z.string().nullable(),
    error_code: z.enum(ERROR_CODES).nullable(),
    new_events: z.array(sessionEvent),
    first_index: z.int().describe('the position of the first of new_events'),
    answer: z.unknown().describe('the last answer'),
    outcome: z.null(),
    metrics,
    pending_tool_calls: z.array(toolCallRequest),
  })
  .meta({ id: 'SessionChanges' });

export const eventPage = numberedPageOf(sessionEvent).meta({ id: 'EventPage' });
