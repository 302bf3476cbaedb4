import { z } from 'zod';
import { PAUSE_REASONS } from '../../../core/records/turn.ts';
import { activityKind, attemptFailure, called } from './activities.ts';
import { timestamp } from './event.ts';
import { subject } from './subject.ts';

const time = timestamp.nullable();

/** An item of `GET …/turns/{tid}/timeline`. */
export const span = z
  .object({
    kind: z
      .enum(['queue', ...activityKind.options, 'wait', 'pause', 'thread'])
      .describe(
        '`queue`: the turn waits in the queue of its session; `model_call`, `tool_call`, `connect_tools`, ' +
          '`open_sandbox`, `run_code`: an attempt of one; `wait`: for an answer; `pause`: the turn is paused; `thread`: a sub-agent works',
      ),
    thread_id: z.string().nullable().describe('null for what concerns the whole turn'),
    scheduled_at: timestamp.optional().describe('with the first attempt of a call: when it was to begin'),
    started_at: time.describe('null if it is not known, or has not begun'),
    ended_at: time.describe('null if it is not known, or is pending'),
    pending: z.boolean().describe('it has not ended; a turn that is done leaves its waits to the next one'),
    message_id: z.string().optional(),
    tool_call_id: z.string().optional(),
    title: z.string().optional().describe('of a sub-agent'),
    attempt: z.int().optional().describe('from 1'),
    worker: z.string().optional().describe('the process that made the attempt, and its host'),
    outcome: z
      .string()
      .optional()
      .describe(
        'of an attempt that was repeated: `failed`, `lost` (its worker never reported its end) or `taken_over` (its worker ' +
          'stopped); of the last one: what came of the call; of a wait: the decision',
      ),
    ...attemptFailure,
    ...called,
    tokens: z
      .object({ input: z.int(), output: z.int() })
      .optional()
      .describe('of all attempts of the model call, as far as they were reported; with the last one'),
    cost_in_usd: z.number().optional().describe("absent if the model's price is unknown"),
    waits_for: z
      .enum([
        ...(['approval', 'response', 'question', 'outcome', 'sign_in', 'toolkits', 'agent'] as const),
        ...PAUSE_REASONS,
      ])
      .optional()
      .describe(
        'of a wait: an `approval` or a `response` of the client, the answer to a `question` of an MCP server, the `outcome` ' +
          'of a call that a person is to say, a `sign_in`, `toolkits` of the client, an `agent` in a session of its own; of ' +
          'a pause: its reason',
      ),
    waited_for: z.enum(['person', 'client']).optional(),
    started_by: subject.optional().describe('of a pause that was requested'),
    ended_by: subject.optional().describe('who has ended a wait or a pause; absent if time has'),
  })
  .meta({ id: 'Span' });

export type WireSpan = z.infer<typeof span>;
