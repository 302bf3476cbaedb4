import { z } from 'zod';

/** What clients see of the activities of a turn (`docs/sessions-api.md`, section 3). */

const time = z.string().nullable().describe('ISO-8601, UTC, milliseconds; null if it is not known');

/** What an attempt has called. */
export const called = {
  provider: z.string().optional().describe('the provider of the model, by its name on this server'),
  model: z.string().optional().describe("the model's name at that provider"),
  address: z.string().optional().describe('host and port of the provider, unless it is at its own address'),
  server: z.string().optional().describe('the MCP server of the tool'),
  tool: z.string().optional(),
};

const attemptOutcome = z
  .enum(['completed', 'failed', 'lost', 'taken_over', 'cancelled'])
  .describe(
    '`completed`: the call has its result, which may be an error; `failed`: it was repeated, or ended with this failure; ' +
      '`lost`: its worker never reported its end; `taken_over`: its worker stopped, and left it to another one',
  );

export const attemptFailure = {
  failure: z.string().optional().describe('the class of the failure'),
  reason: z.string().optional().describe('the failure in words, without secrets, cut to 160 bytes'),
};

export const attempt = z
  .object({
    number: z.int().describe('from 1'),
    started_at: time,
    ended_at: time,
    outcome: attemptOutcome.nullable(),
    worker: z.string().optional().describe('the process that made it, and its host'),
    ...attemptFailure,
    ...called,
  })
  .meta({ id: 'Attempt' });

export const activityKind = z.enum(['model_call', 'tool_call', 'connect_tools', 'open_sandbox', 'run_code']);

export const activity = z
  .object({
    kind: activityKind,
    thread_id: z.string(),
    message_id: z.string().optional().describe('of a model call: the message that it was to give'),
    tool_call_id: z.string().optional(),
    scheduled_at: z.string(),
    attempts: z.array(attempt).describe('in their order; of more than 10 the first and the last 9'),
  })
  .meta({ id: 'Activity' });

/** A part of every durable event. */
export const activities = z
  .array(activity)
  .optional()
  .describe(
    'with `view=full`: the model calls and tool calls that have ended with the event, or since the one before it without ' +
      'an event, each with its attempts',
  );

/** An event of streams with `view=full` alone: lists do not have it. */
export const turnRetrying = z
  .object({
    type: z.literal('turn.retrying'),
    id: z.string(),
    created_at: z.string(),
    thread_id: z.string(),
    message_id: z.string().optional().describe('of a model call: the message that begins again'),
    tool_call_id: z.string().optional(),
    attempt: attempt.describe('the attempt that has failed'),
  })
  .meta({ id: 'TurnRetrying' });

export type WireTurnRetrying = z.infer<typeof turnRetrying>;
export type WireActivity = z.infer<typeof activity>;
