import { z } from 'zod';
import { sentAs } from '../../http/event-stream.ts';
import { ROLES } from '../../../core/subject.ts';
import { activities, turnRetrying } from './activities.ts';
import { budgetReport } from './budget.ts';
import { inputItem, messageContent } from './input.ts';
import { subject } from './subject.ts';

/**
 * The events of a turn as clients see them (`docs/sessions-api.md`, section 3). Fields that also have an older name are
 * sent under both.
 */

export const timestamp = z.string().describe('ISO-8601, UTC, milliseconds');

export const toolInfo = z
  .discriminatedUnion('type', [
    z.object({
      type: z.literal('mcp'),
      server_id: z.string(),
      server_name: z.string(),
      name: z.string(),
      mcp_server_id: z.string(),
      mcp_server_name: z.string(),
      is_deferred: z.boolean(),
    }),
    z.object({ type: z.literal('truefoundry-system'), name: z.string() }),
  ])
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

export const toolCallDelta = z
  .object({
    index: z.int(),
    id: z.string().optional(),
    type: z.literal('function').optional(),
    function: z.object({ name: z.string().optional(), arguments: z.string().optional() }),
    tool_info: toolInfo.optional(),
    provider_specific_fields: providerFields.optional(),
  })
  .meta({ id: 'ToolCallDelta' });

export const usage = z
  .object({
    input_tokens: z.int(),
    output_tokens: z.int(),
    cache_read_tokens: z.int(),
    cache_write_tokens: z.int(),
    cost_in_usd: z.number().optional().describe("absent if a model's price is unknown"),
    input_tokens_breakdown: z
      .object({
        harness: z.int(),
        skills: z.int(),
        instructions: z.int(),
        tool_definitions: z.int(),
        messages: z.int(),
      })
      .describe('input_tokens, divided among the parts of the request in proportion to their characters'),
  })
  .meta({ id: 'Usage' });

const finishReason = z.enum(['stop', 'length', 'tool_calls', 'content_filter', 'cancelled', 'error']);

/** What is known of a message once it is complete. */
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

const base = { id: z.string(), created_at: timestamp, activities };

export const modelMessage = z
  .object({
    type: z.literal('model.message'),
    ...base,
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
  })
  .meta({ id: 'ModelMessage' });

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

export const toolResponse = z
  .object({
    type: z.literal('tool.response'),
    ...base,
    thread_id: z.string(),
    tool_call_id: z.string(),
    content: z.string(),
    outcome: z
      .enum(['succeeded', 'failed', 'denied', 'expired', 'cancelled', 'unknown_outcome'])
      .describe('how the call ended; unknown_outcome: it was started and may or may not have taken effect'),
    arguments: args.optional().describe('the arguments with which it ran, if they were edited'),
    by: subject.optional().describe('who has given the result, in a turn that waited for it'),
  })
  .meta({ id: 'ToolResponse' });

const elicitation = z
  .discriminatedUnion('mode', [
    z.object({
      mode: z.literal('form'),
      message: z.string(),
      requested_schema: z.record(z.string(), z.unknown()).describe('JSON Schema of the content that accepts the form'),
    }),
    z.object({
      mode: z.literal('url'),
      message: z.string(),
      url: z.string().describe('for the user to open, if they trust the server'),
    }),
  ])
  .meta({ id: 'Elicitation', description: 'what the MCP server of a call asks the user' });

const approvers = z.object({ subjects: z.array(z.string()), roles: z.array(z.enum(ROLES)) });

export const approvalPolicy = z
  .object({
    quorum: z.int().describe('how many subjects must allow the call; one denial decides'),
    approvers: approvers.optional().describe('absent: those with the right to decide in the session'),
    exclude_requester: z
      .literal(true)
      .optional()
      .describe('the owner of the session, and the author of the newest user message, may not decide'),
    expires_at: timestamp.optional(),
    escalates_at: timestamp.optional(),
    may_edit_arguments: z.boolean(),
  })
  .describe("the agent's policy for the call, if it has one");

export const askedAgain = z
  .string()
  .optional()
  .describe('set if a call that was approved is asked about once more: why, as a text for those who decide');

const toolCallRef = z.object({
  id: z.string(),
  source_event_id: z.string(),
  event_id: z.string(),
  policy: approvalPolicy.optional(),
  elicitation: elicitation
    .optional()
    .describe('set if the call has begun and its server asks the user: the response is an answer, not a result'),
  unknown_outcome: z
    .string()
    .optional()
    .describe(
      'set if the call has begun and its outcome is unknown: a response says what happened, an approval has the call ' +
        'run again, a denial leaves it unknown',
    ),
  reason: askedAgain,
});

const required = { ...base, thread_id: z.string(), tool_calls: z.array(toolCallRef) };

export const approvalRequired = z
  .object({ type: z.literal('tool.approval_required'), ...required })
  .meta({ id: 'ToolApprovalRequired' });

export const responseRequired = z
  .object({ type: z.literal('tool.response_required'), ...required })
  .meta({ id: 'ToolResponseRequired' });

export const authRequired = z
  .object({
    type: z.literal('mcp.auth_required'),
    ...base,
    thread_id: z.null(),
    mcp_servers: z.array(
      z.object({
        id: z.string(),
        name: z.string(),
        auth_url: z.string().describe('where the owner of the session signs in; empty for all others'),
      }),
    ),
    tool_calls: z.array(toolCallRef).describe('the calls that run after the sign-in'),
    servers: z.array(z.object({ mcp_server_name: z.string(), auth_url: z.string(), thread_ids: z.array(z.string()) })),
  })
  .meta({ id: 'McpAuthRequired' });

export const requiredAction = z.discriminatedUnion('type', [approvalRequired, responseRequired, authRequired]);

export const toolDecided = z
  .object({
    type: z.literal('tool.decided'),
    ...base,
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
  })
  .meta({ id: 'ToolDecided' });

const pauseReason = z
  .enum(['action', 'sign_in', 'delegation', 'requested', 'budget'])
  .describe(
    '`action`: it waits for answers to its tool calls; `sign_in`: for sign-ins only; ' +
      '`delegation`: for agents that work on its calls in sessions of their own; `requested`: a client has paused it; ' +
      '`budget`: its budget was reached',
  );

const pause = {
  ...base,
  thread_id: z.null(),
  reason: pauseReason,
  by: subject.optional(),
  budget: budgetReport.optional().describe('for the reason `budget`: as it was then, or as it was raised'),
};

export const turnPaused = z.object({ type: z.literal('turn.paused'), ...pause }).meta({ id: 'TurnPaused' });

export const turnResumed = z.object({ type: z.literal('turn.resumed'), ...pause }).meta({ id: 'TurnResumed' });

export const userSteered = z
  .object({
    type: z.literal('user.steered'),
    ...base,
    thread_id: z.null(),
    by: subject,
    content: messageContent,
  })
  .meta({ id: 'UserSteered' });

export const contextCompacted = z
  .object({
    type: z.literal('context.compacted'),
    ...base,
    thread_id: z.string(),
    through: z.int().describe('sequence number of the last event of this turn that is replaced; 0: none'),
    summary: z.string().nullable().describe('null if only the results of tools were cleared'),
    tokens_before: z.int().describe('input of the next model call, estimated'),
    tokens_after: z.int(),
  })
  .meta({ id: 'ContextCompacted' });

export const refreshRequired = z
  .object({
    type: z.literal('toolkit.refresh_required'),
    ...base,
    thread_id: z.null(),
    toolkits: z.array(z.string()).describe('those that the client of a run is to refresh before the next model call'),
  })
  .meta({ id: 'ToolkitRefreshRequired' });

export const toolkitRefreshed = z
  .object({
    type: z.literal('toolkit.refreshed'),
    ...base,
    thread_id: z.null(),
    by: subject,
    toolkit: z.string(),
    tools: z.array(z.string()).describe('the names of its tools from now on'),
  })
  .meta({ id: 'ToolkitRefreshed' });

export const mcpInitialize = z
  .object({
    type: z.literal('mcp.initialize'),
    ...base,
    thread_id: z.string(),
    mcp_servers: z.array(
      z.object({
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
        connection: z
          .object({
            id: z.string(),
            account: z.string().nullable().describe('null if the authorization server did not name it'),
            issuer: z.string(),
            created_at: timestamp,
          })
          .optional()
          .describe(
            'for the owner of the session alone: the connection with which a server is used that requires a sign-in',
          ),
      }),
    ),
    unavailable: z
      .array(z.object({ name: z.string(), reason: z.string() }))
      .describe('the servers of the agent whose tools are not offered, and what the model is told of each'),
    content: z.array(z.object({ mcp_server_name: z.string(), session_id: z.string().nullable() })),
  })
  .meta({ id: 'McpInitialize' });

const threadParent = z.object({ thread_id: z.string(), tool_call_id: z.string() });

const thread = { ...base, thread_id: z.string(), title: z.string(), parent: threadParent };

export const threadCreated = z
  .object({
    type: z.literal('thread.created'),
    ...thread,
    agent_info: z.object({
      type: z.literal('dynamic'),
      name: z.string(),
      input: z.string(),
      model: z.string().optional().describe("absent: the parent's, or that of the registered agent"),
      agent: z.string().optional().describe('the registered agent that the sub-agent is'),
    }),
  })
  .meta({ id: 'ThreadCreated' });

const outputJson = z
  .unknown()
  .optional()
  .describe("the output as JSON, if the agent's response_format has a json_schema");

export const threadDone = z
  .object({
    type: z.literal('thread.done'),
    ...thread,
    state: z.discriminatedUnion('status', [
      z.object({ status: z.literal('done'), output: modelMessage, output_json: outputJson }),
      z.object({ status: z.literal('error'), error: z.string() }),
    ]),
    status: z.enum(['done', 'error']),
    output: modelMessage.optional(),
    message: z.string().optional(),
  })
  .meta({ id: 'ThreadDone' });

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

export const turnDoneState = z.discriminatedUnion('status', [
  z.object({
    status: z.literal('done'),
    output: modelMessage.nullable().describe('the last message; null if the turn waits for required_actions'),
    output_json: outputJson,
    required_actions: z.array(requiredAction),
    ...ended,
  }),
  z.object({
    status: z.literal('cancelled'),
    reason: z.enum(['client-cancelled', 'cancelled-for-next-turn', 'server-execution-timeout', 'abandoned']),
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

export const turnCreated = z
  .object({
    type: z.literal('turn.created'),
    ...base,
    thread_id: z.null(),
    turn_id: z.string(),
    previous_turn_id: z.string().nullable(),
    input: z.array(inputItem),
    state: z.object({ status: z.literal('running'), ...queuedState }),
    created_by: subject,
  })
  .meta({ id: 'TurnCreated' });

export const turnDone = z
  .object({ type: z.literal('turn.done'), ...base, thread_id: z.null(), state: turnDoneState })
  .meta({ id: 'TurnDone' });

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
  ])
  .meta({ id: 'TurnEvent' });

/** The events of `GET …/events`. */
export const sessionEvent = z
  .discriminatedUnion('type', [turnCreated, ...turnEvent.options, turnDone])
  .meta({ id: 'SessionEvent' });

/** The events of a stream; each also has a `sequence_number`. */
export const streamEvent = z.discriminatedUnion('type', [...sessionEvent.options, modelMessageDelta, turnRetrying]);

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

export type WireSubject = z.infer<typeof subject>;
export type WireToolInfo = z.infer<typeof toolInfo>;
export type WireModelMessage = z.infer<typeof modelMessage>;
export type WireModelMessageDelta = z.infer<typeof modelMessageDelta>;
export type WireUsage = z.infer<typeof usage>;
export type WireTurnDoneState = z.infer<typeof turnDoneState>;
export type WireTurnMetrics = z.infer<typeof turnMetrics>;
export type WireElicitation = z.infer<typeof elicitation>;
export type WireRequiredAction = z.infer<typeof requiredAction>;
export type TurnEvent = z.infer<typeof turnEvent>;
export type SessionEvent = z.infer<typeof sessionEvent>;
export type StreamEvent = z.infer<typeof streamEvent>;
export type NumberedStreamEvent = z.infer<typeof numberedStreamEvent>;
export type SessionStreamEvent = z.infer<typeof sessionStreamEvent>;
