import { z } from 'zod';
import { sentAs } from '../../http/event-stream.ts';
import { FEATURE_EVENTS, type FeatureEventType } from '../../../features/events.ts';
import { OUTPUT_CHANNELS } from '../../../core/output-parts.ts';
import { PAUSE_REASONS } from '../../../core/records/turn.ts';
import { activities, turnRetrying } from './activities.ts';
import { budgetReport } from './budget.ts';
import { event, timestamp } from './event.ts';
import { inputItem, returnedContent } from './input.ts';
import { approvalRequired, authRequired, requiredAction, responseRequired } from './required-actions.ts';
import { subject } from './subject.ts';

/**
 * The events of a turn as clients see them (`docs/sessions-api.md`, section 3). Fields that also have an older name are
 * sent under both.
 */

export const mcpToolInfo = z.object({
  type: z.literal('mcp'),
  server_id: z.string(),
  server_name: z.string(),
  name: z.string(),
  mcp_server_id: z.string(),
  mcp_server_name: z.string(),
  is_deferred: z.boolean(),
});

export const toolInfo = z
  .discriminatedUnion('type', [mcpToolInfo, z.object({ type: z.literal('truefoundry-system'), name: z.string() })])
  .meta({ id: 'ToolInfo' });

const args = z.record(z.string(), z.unknown());

const providerFields = z.record(z.string(), z.unknown());

export const toolCall = z
  .object({
    id: z.string(),
    type: z.literal('function'),
    function: z.object({ name: z.string(), arguments: z.string().describe('JSON text, as the model wrote it') }),
    tool_info: toolInfo,
    provider_specific_fields: providerFields.optional(),
  })
  .meta({ id: 'ToolCall' });

const toolCallDelta = z
  .object({
    index: z.int(),
    id: z.string().optional(),
    type: z.literal('function').optional(),
    function: z.object({ name: z.string().optional(), arguments: z.string().optional() }),
    tool_info: toolInfo.optional(),
    provider_specific_fields: providerFields.optional(),
  })
  .meta({ id: 'ToolCallDelta' });

export const inputBreakdown = z
  .object({
    harness: z.int(),
    skills: z.int(),
    instructions: z.int(),
    tool_definitions: z.int(),
    messages: z.int(),
  })
  .describe('input_tokens, divided among the parts of the request in proportion to their characters');

export const usage = z
  .object({
    input_tokens: z.int(),
    output_tokens: z.int(),
    cache_read_tokens: z.int(),
    cache_write_tokens: z.int(),
    cost_in_usd: z.number().optional().describe("absent if a model's price is unknown"),
    input_tokens_breakdown: inputBreakdown,
  })
  .meta({ id: 'Usage' });

const finishReason = z.enum(['stop', 'length', 'tool_calls', 'content_filter', 'cancelled', 'error']);

/** The fields of a message that exist once it is complete. */
const messageOrigin = {
  provider: z.string().optional().describe('the provider of the model, by its name on this server'),
  model: z.string().optional().describe("the model's name at that provider"),
  attempts: z
    .array(z.object({ provider: z.string(), model: z.string(), failure: z.string() }))
    .optional()
    .describe('the attempts that failed before, the first one first'),
  misfit: z
    .string()
    .optional()
    .describe("why it is not accepted as an answer: it does not fit the agent's json_schema"),
};

export const modelMessage = event('ModelMessage', 'model.message', {
  thread_id: z.string(),
  content: z.string(),
  refusal: z.string().optional(),
  reasoning_content: z.string().optional(),
  tool_calls: z.array(toolCall),
  finish_reason: finishReason
    .optional()
    .describe('absent on the event that opens a message on a stream, which has the text so far, possibly none'),
  usage: usage.optional(),
  ...messageOrigin,
});

export const modelMessageDelta = z
  .object({
    type: z.literal('model.message.delta'),
    id: z.string(),
    thread_id: z.string(),
    content: z.string().optional(),
    refusal: z.string().optional(),
    reasoning_content: z.string().optional(),
    tool_calls: z.array(toolCallDelta).optional(),
    finish_reason: finishReason.optional(),
    usage: usage.optional(),
    ...messageOrigin,
    activities,
  })
  .meta({ id: 'ModelMessageDelta' });

export const execution = z
  .object({
    generation: z.int().optional().describe('the generation of the kernel after the call; absent if it needs none'),
    exit: z.enum(['ok', 'error', 'denied', 'timeout', 'interrupted', 'died', 'lost', 'stale', 'not_started']),
    started_at: timestamp.optional(),
    duration_ms: z.int().optional(),
    output_bytes: z.int(),
    tool_calls: z.int().optional().describe('how many tools the code has called, if any'),
    commands: z.int().optional(),
    waited_ms: z.int().optional().describe('how long the code has waited for people'),
    defined: z.array(z.string()).describe('the names that the code has defined or changed, at most 100'),
    error: z.object({ name: z.string(), message: z.string() }).optional(),
  })
  .meta({ id: 'Execution', description: 'how a call ran in the sandbox of its session' });

export const savedFile = z
  .object({
    name: z.string(),
    media_type: z.string(),
    bytes: z.int(),
    path: z.string().describe('its path in the workspace'),
    url: z.string().describe('the path of `getWorkspaceFile` with which the file is downloaded'),
  })
  .meta({ id: 'SavedFile', description: 'a file that a call has made in the workspace of its session' });

export const toolResponse = event('ToolResponse', 'tool.response', {
  thread_id: z.string(),
  tool_call_id: z.string(),
  content: z.string(),
  outcome: z
    .enum(['succeeded', 'failed', 'denied', 'expired', 'cancelled', 'unknown_outcome'])
    .describe('how the call ended; unknown_outcome: it was started and may or may not have taken effect'),
  arguments: args.optional().describe('the arguments with which it ran, if they were edited'),
  by: subject.optional().describe('who has given the result, in a turn that waited for it'),
  execution: execution.optional(),
  files: z
    .array(savedFile)
    .optional()
    .describe('what code has displayed, as files; the first one is the whole result, if that is too long for an event'),
});

/** An event of streams with `view=full` alone: the `tool.response` with its id has all of the output. */
const toolResponseDelta = z
  .object({
    type: z.literal('tool.response.delta'),
    id: z.string().describe('the id of the `tool.response` that the call is to have'),
    created_at: timestamp.describe('when the code began'),
    thread_id: z.string(),
    tool_call_id: z.string(),
    channel: z.enum(OUTPUT_CHANNELS),
    content: z.string(),
    reset: z.literal(true).optional().describe('what was sent of the output before does not count any more'),
  })
  .meta({ id: 'ToolResponseDelta' });

export const toolDecided = event('ToolDecided', 'tool.decided', {
  thread_id: z.string(),
  tool_call_id: z.string(),
  decision: z
    .enum(['allow', 'deny', 'respond', 'expired', 'escalated'])
    .describe('respond: the question of the MCP server was answered'),
  by: subject.optional().describe('absent if time has decided'),
  reason: z.string().optional(),
  arguments: args.optional().describe('what was allowed, if not the arguments that the model wrote'),
  remembered: z
    .literal(true)
    .optional()
    .describe('in a run: it holds for later calls of the tool, or is that of an earlier call'),
  remaining: z.int().describe('how many votes are still needed before the call runs'),
});

const pauseReason = z
  .enum(PAUSE_REASONS)
  .describe(
    '`action`: it waits for answers to its tool calls; `sign_in`: for sign-ins only; ' +
      '`delegation`: for agents that work on its calls in sessions of their own; `requested`: a client has paused it; ' +
      '`budget`: its budget was reached',
  );

const pause = {
  thread_id: z.null(),
  reason: pauseReason,
  by: subject.optional(),
  budget: budgetReport.optional().describe('for the reason `budget`: as it was then, or as it was raised'),
};

export const turnPaused = event('TurnPaused', 'turn.paused', pause);

export const turnResumed = event('TurnResumed', 'turn.resumed', pause);

export const userSteered = event('UserSteered', 'user.steered', {
  thread_id: z.null(),
  by: subject,
  content: returnedContent,
});

export const contextCompacted = event('ContextCompacted', 'context.compacted', {
  thread_id: z.string(),
  through: z.int().describe('sequence number of the last event of this turn that is replaced; 0: none'),
  summary: z.string().nullable().describe('null if only the results of tools were cleared'),
  tokens_before: z.int().describe('input of the next model call, estimated'),
  tokens_after: z.int(),
});

export const refreshRequired = event('ToolkitRefreshRequired', 'toolkit.refresh_required', {
  thread_id: z.null(),
  toolkits: z.array(z.string()).describe('those that the client of a run is to refresh before the next model call'),
});

export const toolkitRefreshed = event('ToolkitRefreshed', 'toolkit.refreshed', {
  thread_id: z.null(),
  by: subject,
  toolkit: z.string(),
  tools: z.array(z.string()).describe('the names of its tools from now on'),
});

export const usedConnection = z.object({
  id: z.string(),
  account: z.string().nullable().describe('null if the authorization server did not name it'),
  issuer: z.string(),
  created_at: timestamp,
});

export const usedServer = z.object({
  id: z.string(),
  name: z.string(),
  session_id: z.string().nullable(),
  transport_type: z.enum(['streamable-http', 'sse']),
  warnings: z
    .array(z.string())
    .optional()
    .describe(
      "what the agent's lists and policies name that is no tool of the server, the tools without annotations of an inline server that run unasked, and the agent's warnings that concern the server",
    ),
  connection: usedConnection
    .optional()
    .describe('for the owner of the session alone: the connection with which a server is used that requires a sign-in'),
});

const mcpInitialize = event('McpInitialize', 'mcp.initialize', {
  thread_id: z.string(),
  mcp_servers: z.array(usedServer),
  unavailable: z
    .array(z.object({ name: z.string(), reason: z.string() }))
    .describe('the servers of the agent whose tools are not offered, and what the model is told of each'),
  content: z.array(z.object({ mcp_server_name: z.string(), session_id: z.string().nullable() })),
});

export const threadParent = z.object({ thread_id: z.string(), tool_call_id: z.string() });

const thread = { thread_id: z.string(), title: z.string(), parent: threadParent };

export const threadCreated = event('ThreadCreated', 'thread.created', {
  ...thread,
  kind: z
    .literal('code')
    .optional()
    .describe('the thread is the code of its parent, and its messages are the calls that the code makes'),
  agent_info: z.object({
    type: z.literal('dynamic'),
    name: z.string(),
    input: z.string(),
    model: z.string().optional().describe("absent: the parent's, or that of the registered agent"),
    agent: z.string().optional().describe('the registered agent that the sub-agent is'),
  }),
});

const outputJson = z
  .unknown()
  .optional()
  .describe("the output as JSON, if the agent's response_format has a json_schema");

export const threadDone = event('ThreadDone', 'thread.done', {
  ...thread,
  state: z.discriminatedUnion('status', [
    z.object({ status: z.literal('done'), output: modelMessage, output_json: outputJson }),
    z.object({ status: z.literal('error'), error: z.string() }),
  ]),
  status: z.enum(['done', 'error']),
  output: modelMessage.optional(),
  message: z.string().optional(),
});

export const turnMetrics = z
  .object({
    total_input_tokens: z.int(),
    total_output_tokens: z.int(),
    total_tokens: z.int(),
    total_cache_read_tokens: z.int(),
    total_cache_write_tokens: z.int(),
    total_reasoning_tokens: z.int(),
    total_cost_in_usd: z.number().optional().describe('absent if the price of a model that was used is unknown'),
    model_calls: z.int().describe('messages of models, with those of sub-agents'),
    tool_calls: z.int().describe('calls in these messages'),
    waited_ms: z.int().describe('how long the turn was paused'),
    unreported_attempts: z
      .int()
      .describe('attempts at a model that ended before their usage was reported; their tokens are not counted'),
  })
  .meta({ id: 'TurnMetrics' });

const ended = {
  completed_at: timestamp,
  metrics: turnMetrics,
  limit: z
    .enum(['iterations', 'time'])
    .optional()
    .describe('set if the turn reached its `iteration_limit` or `answer_after_seconds`, and was asked for its answer'),
};

const turnDoneState = z.discriminatedUnion('status', [
  z.object({
    status: z.literal('done'),
    output: modelMessage.nullable().describe('the last message; null if the turn waits for required_actions'),
    output_json: outputJson,
    required_actions: z.array(requiredAction),
    ended_by: z
      .enum(['denial', 'max_turns'])
      .optional()
      .describe(
        'why the turn ended without an answer; `output` is what the agent has said last. denial: a person has denied a call, see `code_actions.on_deny`; max_turns: ' +
          'its request allowed no further model call',
      ),
    ...ended,
  }),
  z.object({
    status: z.literal('cancelled'),
    reason: z.enum(['client-cancelled', 'cancelled-for-next-turn', 'server-execution-timeout', 'abandoned']),
    phase: z
      .enum(['model', 'tool', 'between'])
      .optional()
      .describe(
        'what the turn did when it was cancelled. model: the root agent called its model; tool: its calls ran, or sub-agents ' +
          'worked on them; between: neither, as while people decide',
      ),
    ...ended,
  }),
  z.object({
    status: z.literal('error'),
    message: z.string(),
    code: z.literal('budget_exceeded').optional().describe('set if the budget of the turn was reached'),
    ...ended,
  }),
]);

const queuedState = {
  queued: z
    .object({ position: z.int() })
    .optional()
    .describe('the turn waits in the queue of its session (`on_running: "queue"`); position 1 begins next'),
};

export const turnState = z
  .discriminatedUnion('status', [
    z.object({
      status: z.literal('running'),
      waiting: z
        .array(z.string())
        .optional()
        .describe('the ids of the tool calls that wait for answers while the turn runs (`pause: "wait"`)'),
      paused: z.array(pauseReason).optional().describe('why the turn is paused; absent if it is not'),
      retrying: z
        .object({
          since: timestamp.describe('when the first attempt ended'),
          provider: z
            .string()
            .nullable()
            .describe(
              'the provider of the model, or the MCP server, that the last attempt has called; null if not known',
            ),
          reason: z.string().describe('how the last attempt has failed'),
        })
        .optional()
        .describe('a model call or tool call of the turn has failed, and is repeated'),
      ...queuedState,
    }),
    ...turnDoneState.options,
  ])
  .meta({ id: 'TurnState' });

export const turnCreated = event('TurnCreated', 'turn.created', {
  thread_id: z.null(),
  turn_id: z.string(),
  previous_turn_id: z.string().nullable(),
  input: z.array(inputItem),
  state: z.object({ status: z.literal('running'), ...queuedState }),
  created_by: subject,
});

export const turnDone = event('TurnDone', 'turn.done', { thread_id: z.null(), state: turnDoneState });

/** The events of features; their types are distinct from all others. */
const featureEvents = Object.entries(FEATURE_EVENTS).map(([type, { name, fields }]) =>
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys of the table
  event(name, type as FeatureEventType, { thread_id: z.string().nullable(), ...fields }),
);

/** The events of `GET …/turns/{tid}/events`: durable, folded, without `turn.created` and `turn.done`. */
export const turnEvent = z
  .discriminatedUnion('type', [
    modelMessage,
    toolResponse,
    approvalRequired,
    responseRequired,
    toolDecided,
    contextCompacted,
    refreshRequired,
    toolkitRefreshed,
    turnPaused,
    turnResumed,
    userSteered,
    mcpInitialize,
    authRequired,
    threadCreated,
    threadDone,
    ...featureEvents,
  ])
  .meta({ id: 'TurnEvent' });

/** The events of `GET …/events`. */
export const sessionEvent = z
  .discriminatedUnion('type', [turnCreated, ...turnEvent.options, turnDone])
  .meta({ id: 'SessionEvent' });

/** The events of a stream; each also has a `sequence_number`. */
export const streamEvent = z.discriminatedUnion('type', [
  ...sessionEvent.options,
  modelMessageDelta,
  toolResponseDelta,
  turnRetrying,
]);

export const numberedStreamEvent = streamEvent.and(z.object({ sequence_number: z.int() })).meta({ id: 'StreamEvent' });

/** An event of a session's stream; its `sequence_number` is that of the session. */
export const sessionStreamEvent = numberedStreamEvent
  .and(z.object({ turn_id: z.string() }))
  .meta({ id: 'SessionStreamEvent' });

/** A `StreamEvent` as it is sent (section 2). */
export const serverSentEvent = sentAs('StreamEvent').meta({
  id: 'ServerSentEvent',
  description: 'one event of the stream',
});

/** A `SessionStreamEvent` as it is sent. */
export const sessionServerSentEvent = sentAs('SessionStreamEvent').meta({
  id: 'SessionServerSentEvent',
  description: 'one event of the stream of a session',
});

export type WireToolInfo = z.infer<typeof toolInfo>;
export type WireModelMessage = z.infer<typeof modelMessage>;
export type WireModelMessageDelta = z.infer<typeof modelMessageDelta>;
export type WireTurnDoneState = z.infer<typeof turnDoneState>;
export type SessionEvent = z.infer<typeof sessionEvent>;
export type StreamEvent = z.infer<typeof streamEvent>;
export type NumberedStreamEvent = z.infer<typeof numberedStreamEvent>;
export type SessionStreamEvent = z.infer<typeof sessionStreamEvent>;
