import { z } from 'zod';
import { AUDIO_FORMATS } from '../../../core/audio-formats.ts';
import { sentAs } from '../../http/event-stream.ts';
import { citation, hostedCall, hostedCallPart, hostedResultPart } from './hosted.ts';

/**
 * The responses about a run: its items, the run and the events of its stream. They have both the fields of llm-sdk 0.3
 * and those of 0.4, for readers of either version.
 */

const jsonObject = z.record(z.string(), z.unknown());
const timestamp = z.iso.datetime({ precision: 3 });

const signature = z
  .string()
  .describe('opaque: send the part back with it, and the provider that wrote it gets what it needs to continue');

const textPart = z.object({ type: z.literal('text'), text: z.string().min(1), signature: signature.optional() });

/** A text of a model. */
const answerPart = textPart.extend({
  citations: z.array(citation).optional().describe('the sources of the text, as the provider gives them'),
});

const reasoningPart = z.object({ type: z.literal('reasoning'), text: z.string(), signature: signature.optional() });

const toolCallPart = z.object({
  type: z.literal('tool-call'),
  tool_call_id: z.string(),
  tool_name: z.string(),
  args: jsonObject,
  call: z.object({ type: z.literal('function'), name: z.string(), args: jsonObject }),
  raw_args: z.string().optional().describe('what the model wrote, if that is not a JSON object: `args` is empty then'),
  signature: signature.optional(),
});

const imagePart = z.object({ type: z.literal('image'), mime_type: z.string(), data: z.base64() });

const audioPart = z.object({ type: z.literal('audio'), format: z.enum(AUDIO_FORMATS), data: z.base64() });

const spokenPart = audioPart.extend({
  sample_rate: z.int().optional(),
  channels: z.int().optional(),
  transcript: z.string().optional().describe('what later model calls are given of it'),
  id: z.string().optional().describe('that of its provider'),
});

const drawnPart = imagePart.extend({ signature: signature.optional() });

/** A part of a model's message. */
const modelPart = z
  .union([answerPart, reasoningPart, toolCallPart, hostedCallPart, hostedResultPart, drawnPart, spokenPart])
  .meta({ id: 'RunModelPart' });

/** A part of a tool's result. */
export const resultPart = z.discriminatedUnion('type', [textPart, imagePart, audioPart]).meta({ id: 'RunResultPart' });

const tokenDetails = z.object({
  text_tokens: z.int().optional(),
  cached_text_tokens: z.int().optional(),
  audio_tokens: z.int().optional(),
  cached_audio_tokens: z.int().optional(),
  image_tokens: z.int().optional(),
  cached_image_tokens: z.int().optional(),
});

export const modelUsage = z
  .object({
    input_tokens: z.int().describe('those from the cache included'),
    output_tokens: z.int(),
    input_tokens_details: tokenDetails.optional(),
    output_tokens_details: tokenDetails.optional(),
  })
  .meta({ id: 'RunModelUsage' });

const cost = z.number().min(0).describe('in USD');

const modelItem = z.object({
  type: z.literal('model'),
  id: z.string(),
  created_at: timestamp,
  content: z.array(modelPart),
  usage: modelUsage.optional(),
  cost: cost.optional(),
  model: z.string().optional().describe("the model's name at its provider"),
  finish_reason: z.enum(['stop', 'length', 'tool_calls', 'content_filter', 'cancelled', 'error']),
});

const toolItem = z.object({
  type: z.literal('tool'),
  id: z.string(),
  created_at: timestamp,
  tool_call_id: z.string(),
  tool_name: z.string(),
  input: jsonObject,
  output: z.array(resultPart).describe('what the model is shown; empty for a call that was cancelled'),
  is_error: z.boolean().describe('true unless the status is completed'),
  status: z.enum(['completed', 'failed', 'cancelled']),
  outcome: z.enum(['succeeded', 'failed', 'denied', 'expired', 'cancelled', 'unknown_outcome']),
  reused: z
    .literal(true)
    .optional()
    .describe(
      'the call was begun in the run whose item the input has, and was not run again: this is its result there',
    ),
  operation_id: z
    .string()
    .optional()
    .describe('what the server of the tool receives; absent if the call was not to run here'),
});

const runItem = z.discriminatedUnion('type', [modelItem, toolItem]).meta({ id: 'RunItem' });

const runErrorType = z.enum([
  'language_model_error',
  'tool_execution_error',
  'max_turns_exceeded',
  'invariant_error',
  'init_error',
  'timeout',
  'action_expired',
  'internal_error',
]);

const runErrorCause = z.object({
  type: z.enum([
    'status_code',
    'invalid_input',
    'unsupported',
    'refusal',
    'invariant',
    'not_implemented',
    'network',
    'unreachable',
    'protocol',
    'timeout',
    'unknown_outcome',
    'client',
  ]),
  message: z.string(),
  status_code: z.int().optional(),
  provider: z.string().optional(),
  tool_call_id: z.string().optional(),
  tool_name: z.string().optional(),
});

const runError = z
  .object({
    type: runErrorType,
    name: z.string().describe('the class of error that the client library throws'),
    message: z.string(),
    cause: runErrorCause.optional(),
  })
  .meta({ id: 'RunError' });

const pendingCall = z.object({
  tool_call_id: z.string(),
  tool_name: z.string(),
  args: jsonObject,
  thread_id: z.string(),
});

const requiredAction = z.object({
  turn: z.int().describe('the model call that it follows'),
  expires_at: timestamp,
  tool_calls: z.array(pendingCall.extend({ operation_id: z.string() })).describe('that the client runs'),
  sign_ins: z
    .array(
      z.object({
        server: z.string(),
        auth_url: z
          .string()
          .optional()
          .describe(
            'where the owner of the run signs in to the MCP server; the run then continues by itself. Absent for all others',
          ),
        thread_ids: z.array(z.string()).describe('the threads that wait for it'),
        tool_call_ids: z.array(z.string()).describe('the calls that run after it; none: a model call waits for it'),
      }),
    )
    .optional()
    .describe('absent if there are none'),
  refresh: z.array(z.string()).describe('the dynamic toolkits that the client refreshes before the next model call'),
  approvals: z.array(
    pendingCall.extend({
      action: z.object({
        kind: z.literal('approval'),
        tool: z.object({ server: z.string().nullable(), name: z.string() }),
        requested_at: timestamp,
        expires_at: timestamp.optional(),
        remaining: z.int().describe('how many subjects must still allow the call'),
        may_edit_arguments: z.boolean(),
        reason: z.string().optional().describe('set if a call that was approved is asked about once more: why'),
      }),
    }),
  ),
});

export const RUN_STATUSES = ['running', 'requires_action', 'completed', 'cancelled', 'failed'] as const;

/** The fields of a run that do not depend on its log. */
const runHeader = z.object({
  id: z.string(),
  object: z.literal('run'),
  agent_name: z.string(),
  agent_version: z.int().optional(),
  created_at: timestamp,
  metadata: z.record(z.string(), z.string()),
});

export const run = runHeader
  .extend({
    status: z.enum(RUN_STATUSES),
    content: z.array(modelPart).describe('of the last message; empty until there is one'),
    output: z.array(runItem).describe('the new items: the input of the next run is this one and its output'),
    completed_at: timestamp.nullable(),
    turns: z.int().describe('model calls'),
    usage: modelUsage.nullable().describe('the sum over the items'),
    cost: cost.nullable().describe('the sum over the items, in USD; null if the price of one is unknown'),
    unreported_attempts: z.int().describe('attempts at model calls that ended before they reported their usage'),
    output_json: z.unknown().optional().describe('the answer as a value, with a `response_format` of type json'),
    repaired: z.array(z.string()).optional().describe('calls of the input without a result, answered as cancelled'),
    required_action: requiredAction.optional(),
    error: runError.optional(),
  })
  .meta({ id: 'Run' });

/** A run in a list. */
export const runSummary = run.omit({ content: true, output: true }).meta({ id: 'RunSummary' });

const sequence = { sequence_number: z.int() };

/** A fragment of a part: texts, arguments and data are appended, other fields replace. */
const partDelta = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('text'),
    text: z.string(),
    citation: citation
      .extend({ type: z.literal('citation') })
      .optional()
      .describe('complete: the next one of the part'),
    signature: signature.optional(),
  }),
  z.object({ type: z.literal('reasoning'), text: z.string(), signature: signature.optional() }),
  z.object({
    type: z.literal('tool-call'),
    tool_call_id: z.string().optional(),
    tool_name: z.string().optional(),
    args: z.string().optional(),
    call: z
      .discriminatedUnion('type', [
        z.object({ type: z.literal('function'), name: z.string().optional(), args: z.string().optional() }),
        hostedCall,
      ])
      .optional(),
    signature: signature.optional(),
  }),
  drawnPart.partial({ mime_type: true, data: true }),
  spokenPart.partial({ format: true, data: true }),
  hostedResultPart,
]);

const partialEvent = z.object({
  event: z.literal('partial'),
  item_index: z.int(),
  reset: z.literal(true).optional().describe('the item starts over: forget its earlier partials'),
  delta: z.object({ index: z.int(), part: partDelta }).optional(),
  usage: modelUsage.optional(),
  cost: cost.optional(),
  ...sequence,
});

const itemEvent = z.object({ event: z.literal('item'), index: z.int(), item: runItem, ...sequence });
const responseEvent = run.extend({ event: z.literal('response'), ...sequence });
const errorEvent = z.object({
  event: z.literal('error'),
  error: runError,
  output: z.array(runItem),
  status: z.literal('failed'),
  ...sequence,
});

export const runStreamEvent = z
  .discriminatedUnion('event', [partialEvent, itemEvent, responseEvent, errorEvent])
  .meta({ id: 'RunStreamEvent' });

/** A `RunStreamEvent` as it is sent. */
export const sentRunEvent = sentAs('RunStreamEvent').meta({
  id: 'RunServerSentEvent',
  description: 'one event of the stream of a run',
});

export type ModelPart = z.infer<typeof modelPart>;
export type ResultPart = z.infer<typeof resultPart>;
export type ModelUsage = z.infer<typeof modelUsage>;
export type RunToolItem = z.infer<typeof toolItem>;
export type RunItem = z.infer<typeof runItem>;
export type RunError = z.infer<typeof runError>;
export type RunRequiredAction = z.infer<typeof requiredAction>;
export type RunHeader = z.infer<typeof runHeader>;
export type Run = z.infer<typeof run>;
export type RunSummary = z.infer<typeof runSummary>;
/** The fields of a run in lists, beside its header. */
export type RunFigures = Omit<RunSummary, keyof RunHeader>;
export type RunStatus = Run['status'];
export type PartDelta = z.infer<typeof partDelta>;
export type RunStreamEvent = z.infer<typeof runStreamEvent>;
