import { sequenceNumber } from '../../../core/cursor.ts';
import { responseText } from '../../../core/tool-records.ts';
import { truncateMiddle, fairShare } from '../../../core/text.ts';
import type { MessageDelta, MessageText, ToolCallDelta, ToolCallText } from '../../../core/message.ts';
import {
  NO_USAGE,
  type ActionRequired,
  type Approval,
  type ApprovalPolicy,
  type AuthRequired,
  type ContextCompacted,
  type Elicitation,
  type InputBreakdown,
  type InputItem,
  type LogRecord,
  type McpInitialized,
  type ModelMessage,
  type PendingCall,
  type PendingElicitation,
  type RequiredAction,
  type StoredFile,
  type SubAgent,
  type ThreadCreated,
  type ThreadDone,
  type ToolCall,
  type ToolDecided,
  type ToolInfo,
  type ToolResponse,
  type TurnCreated,
  type TurnDone,
  type TurnPaused,
  type Usage,
  type UserSteered,
} from '../../../core/records.ts';
import type { Subject } from '../../../core/subject.ts';
import type {
  SessionEvent,
  WireElicitation,
  WireModelMessage,
  WireModelMessageDelta,
  WireRequiredAction,
  WireSubject,
  WireToolInfo,
  WireTurnDoneState,
  WireTurnMetrics,
  WireUsage,
} from './events.ts';
import type { WireApproval, WireInputItem } from './input.ts';

/** The texts of one event share this many bytes: a `data:` line must stay below 1 MiB, or the Python client fails. */
const MAX_TEXT_BYTES = 512 * 1024;

/**
 * What is left of a record, or of a part of one, after each field has been mapped or named as internal. By
 * `rest satisfies NoFields` a field that is added in core and forgotten here is a type error.
 */
type NoFields = Record<string, never>;

/** A durable record as clients see it: one event, folded. */
export function toWire(record: LogRecord): SessionEvent {
  switch (record.kind) {
    case 'turn.created':
      return turnCreatedToWire(record);
    case 'model.message':
      return messageToWire(record);
    case 'tool.response':
      return toolResponseToWire(record);
    case 'mcp.initialize':
      return mcpInitializeToWire(record);
    case 'thread.created':
      return threadCreatedToWire(record);
    case 'thread.done':
      return threadDoneToWire(record);
    case 'tool.approval_required':
    case 'tool.response_required':
    case 'mcp.auth_required':
      return actionToWire(record);
    case 'tool.decided':
      return toolDecidedToWire(record);
    case 'turn.paused':
    case 'turn.resumed':
      return pauseToWire(record);
    case 'user.steered':
      return steeredToWire(record);
    case 'context.compacted':
      return compactedToWire(record);
    case 'turn.done':
      return turnDoneToWire(record);
  }
}

/** Whether clients get the event of a record: those that do not know its type would fail. */
export function isShown(record: LogRecord): boolean {
  return record.kind !== 'context.compacted' || record.isShown === true;
}

/** The text of a result; one that was cut ends with the address of the whole. */
function contentOf(record: ToolResponse): string {
  const text = responseText(record);
  if (!record.fullText) return text;
  const { name, sessionId } = record.fullText;
  return `${text}\n[${name}: GET ${fileUrl(record.fullText, sessionId)}]`;
}

/** The state of a turn that has not ended; `position` is its position in the queue, if it waits there. */
export function runningState(position?: number): { status: 'running'; queued?: { position: number } } {
  return { status: 'running', ...(position !== undefined && { queued: { position } }) };
}

export function turnCreatedToWire(record: TurnCreated, position?: number): SessionEvent {
  const { kind: type, id, at, turnId, sessionId, previousTurnId, createdBy, input, specHash: _, ...rest } = record;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: null,
    turn_id: turnId,
    previous_turn_id: previousTurnId,
    input: inputToWire(input, sessionId),
    state: runningState(position),
    created_by: subjectToWire(createdBy),
  };
}

function toolResponseToWire(record: ToolResponse): SessionEvent {
  // `contentOf` renders content and full text, the content names the files, and the found tools are for the model.
  const { files: _, foundTools: __, fullText: ___, content: ____, ...shown } = record;
  const { kind: type, id, at, threadId, toolCallId, outcome, fromThread, by, arguments: executed, ...rest } = shown;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    tool_call_id: toolCallId,
    // The thread of a sub-agent has its answer.
    content: fromThread === undefined ? contentOf(record) : '',
    outcome,
    ...(executed !== undefined && { arguments: objectOf(executed) }),
    ...(by && { by: subjectToWire(by) }),
  };
}

function mcpInitializeToWire(record: McpInitialized): SessionEvent {
  const { kind: type, id, at, threadId, servers, ...rest } = record;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    mcp_servers: servers.map(({ id, name, sessionId, transport, ...rest }) => {
      rest satisfies NoFields;
      // Clients accept two values only: stdio is shown as the one that is not the deprecated transport.
      const transportType = transport === 'sse' ? 'sse' : 'streamable-http';
      return { id, name, session_id: sessionId, transport_type: transportType };
    }),
    content: servers.map(({ name, sessionId }) => ({ mcp_server_name: name, session_id: sessionId })),
  };
}

function threadCreatedToWire({ kind: type, id, at, thread, input, ...rest }: ThreadCreated): SessionEvent {
  rest satisfies NoFields;
  const { threadId, title, parent, agent, model, ...internal } = thread;
  // How the server runs it.
  const { depth: _, specHash: __, isRegistered: ___, hasServers: ____, iterations: _____, ...more } = internal;
  more satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    title,
    parent: parentToWire(parent),
    agent_info: {
      type: 'dynamic',
      name: title,
      input: truncateMiddle(
        input,
        MAX_TEXT_BYTES,
        (n) => `[${n} characters left out here; the sub-agent received them]`,
      ),
      ...(model !== undefined && { model }),
      ...(agent !== undefined && { agent }),
    },
  };
}

function threadDoneToWire(record: ThreadDone): SessionEvent {
  const { kind: type, id, at, threadId, title, parent, end, output, ...rest } = record;
  rest satisfies NoFields;
  const thread = { type, id, created_at: at, thread_id: threadId, title, parent: parentToWire(parent) };
  if (end.status === 'error') {
    const { status, message } = end;
    return { ...thread, state: { status, error: message }, status, message };
  }
  const { status } = end;
  if (!output) throw new Error(`the end of thread ${threadId} has no output`);
  const shown = shortened(output, MAX_TEXT_BYTES / 2);
  return { ...thread, state: { status, output: shown }, status, output: shown };
}

function parentToWire({ threadId, toolCallId, ...rest }: SubAgent['parent']): {
  thread_id: string;
  tool_call_id: string;
} {
  rest satisfies NoFields;
  return { thread_id: threadId, tool_call_id: toolCallId };
}

function turnDoneToWire({ kind: type, id, ...state }: TurnDone): SessionEvent {
  return { type, id, created_at: state.at, thread_id: null, state: stateToWire(state) };
}

export function subjectToWire({ subjectId, subjectType, subjectSlug, ...rest }: Subject): WireSubject {
  rest satisfies NoFields;
  return { subject_id: subjectId, subject_type: subjectType, subject_slug: subjectSlug };
}

export function stateToWire({ at, end, ...totals }: Omit<TurnDone, 'kind' | 'id'>): WireTurnDoneState {
  const ended = { completed_at: at, metrics: metrics(totals) };
  switch (end.status) {
    case 'done': {
      // The next turn continues the threads.
      const { status, output, requiredActions, threads: _, ...rest } = end;
      rest satisfies NoFields;
      return {
        status,
        output: output && shortened(output),
        // Its length was checked with its schema.
        ...(output?.structured?.fits && { output_json: JSON.parse(output.content) as unknown }),
        required_actions: requiredActions.map(actionToWire),
        ...ended,
      };
    }
    case 'cancelled': {
      const { status, reason, ...rest } = end;
      rest satisfies NoFields;
      return { status, reason, ...ended };
    }
    case 'error': {
      const { status, message, ...rest } = end;
      rest satisfies NoFields;
      return { status, message, ...ended };
    }
  }
}

/** A message as the output of a turn or a thread, with texts that fit in the event of its end. */
function shortened(message: ModelMessage, maxBytes = MAX_TEXT_BYTES): WireModelMessage {
  const { content, refusal, reasoning } = message;
  const share = fairShare([content, refusal, reasoning], maxBytes);
  const fit = (text: string) =>
    truncateMiddle(text, share, (n) => `[${n} characters left out; the events of the turn contain them]`);
  return messageToWire({ ...message, content: fit(content), refusal: fit(refusal), reasoning: fit(reasoning) });
}

function metrics({
  usage,
  modelCalls,
  toolCalls,
  waitedMs,
  ...more
}: Omit<TurnDone, 'kind' | 'id' | 'at' | 'end'>): WireTurnMetrics {
  more satisfies NoFields;
  const {
    inputTokens,
    outputTokens,
    cacheReadTokens,
    cacheWriteTokens,
    reasoningTokens,
    unreportedAttempts = 0,
    costInUsd,
    ...rest
  } = usage;
  rest satisfies NoFields;
  return {
    total_input_tokens: inputTokens,
    total_output_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
    total_cache_read_tokens: cacheReadTokens,
    total_cache_write_tokens: cacheWriteTokens,
    total_reasoning_tokens: reasoningTokens,
    ...(costInUsd !== undefined && { total_cost_in_usd: dollars(costInUsd) }),
    model_calls: modelCalls,
    tool_calls: toolCalls,
    waited_ms: waitedMs,
    unreported_attempts: unreportedAttempts,
  };
}

export function inputToWire(input: InputItem[], sessionId: string): WireInputItem[] {
  const texts = input.flatMap((item) => {
    if (item.type === 'user.tool_approval') return 'reason' in item.approval ? [item.approval.reason ?? ''] : [];
    return textsOf(item.content);
  });
  const fit = fitting(texts);
  return input.map((item): WireInputItem => {
    switch (item.type) {
      case 'user.message': {
        const { type, content, ...rest } = item;
        rest satisfies NoFields;
        return { type, content: contentToWire(content, fit, sessionId) };
      }
      case 'user.tool_approval': {
        const { type, threadId, toolCallId, approval, by, ...rest } = item;
        rest satisfies NoFields;
        const shown = approvalToWire(approval, fit);
        return { type, thread_id: threadId, tool_call_id: toolCallId, approval: shown, ...authorToWire(by) };
      }
      case 'user.tool_response': {
        const { type, threadId, toolCallId, content, by, ...rest } = item;
        rest satisfies NoFields;
        return { type, thread_id: threadId, tool_call_id: toolCallId, content: fit(content), ...authorToWire(by) };
      }
    }
  });
}

function authorToWire(by: Subject | undefined): { by?: ReturnType<typeof subjectToWire> } {
  return by ? { by: subjectToWire(by) } : {};
}

function approvalToWire(approval: Approval, fit: (text: string) => string): WireApproval {
  if (approval.status === 'deny') {
    const { status, reason, ...rest } = approval;
    rest satisfies NoFields;
    return { status, ...(reason !== undefined && { reason: fit(reason) }) };
  }
  const { status, edited, ...rest } = approval;
  rest satisfies NoFields;
  return { status, ...(edited && { arguments: objectOf(edited.arguments) }) };
}

/** Arguments that a person has edited. */
function objectOf(json: string): Record<string, unknown> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object: see `editedArguments`
  return JSON.parse(json) as Record<string, unknown>;
}

function textsOf(content: UserSteered['content']): string[] {
  if (typeof content === 'string') return [content];
  return content.flatMap((part) => (part.type === 'text' ? [part.text] : []));
}

/** Cuts the texts of one event so that all of them fit into it. */
function fitting(texts: string[]): (text: string) => string {
  const share = fairShare(texts, MAX_TEXT_BYTES);
  return (text) => truncateMiddle(text, share, (n) => `[${n} characters left out here; the model received them]`);
}

function contentToWire(content: UserSteered['content'], fit: (text: string) => string, sessionId: string) {
  if (typeof content === 'string') return fit(content);
  return content.map((part) =>
    part.type === 'text'
      ? { type: 'text' as const, text: fit(part.text) }
      : { type: 'file' as const, name: part.name, data: fileData(part, sessionId) },
  );
}

function fileData(file: StoredFile, sessionId: string): string {
  return 'blob' in file ? fileUrl(file, sessionId) : `data:${file.mimeType};base64,${file.base64}`;
}

/**
 * The path of this server under which a client gets a file of its session. It is made when a record is mapped: records
 * hold no paths of routes.
 */
export function fileUrl(file: { blob: string; name: string; mimeType: string }, sessionId: string): string {
  const query = new URLSearchParams({ name: file.name, type: file.mimeType });
  return `/v1/agents/sessions/${sessionId}/files/${file.blob}?${query.toString()}`;
}

/** The event that opens a message on a stream, with the text that the message has already. */
export function messageBase(message: MessageHeader, text: MessageText): WireModelMessage {
  const { content, refusal, reasoning, toolCalls, ...rest } = text;
  rest satisfies NoFields;
  return {
    type: 'model.message',
    id: message.id,
    created_at: message.at,
    thread_id: message.threadId,
    content,
    ...(refusal && { refusal }),
    ...(reasoning && { reasoning_content: reasoning }),
    tool_calls: toolCalls.map(toolCallToWire),
  };
}

type MessageHeader = Pick<ModelMessage, 'id' | 'at' | 'threadId'>;

function messageToWire(message: ModelMessage): WireModelMessage {
  const { content, refusal, reasoning, toolCalls } = message;
  return { ...messageBase(message, { content, refusal, reasoning, toolCalls }), ...messageEnd(message) };
}

/** The fields of a message beside its text: its last delta carries them. */
export function messageEnd(
  message: Omit<ModelMessage, keyof MessageHeader | keyof MessageText>,
): Pick<WireModelMessageDelta, 'finish_reason' | 'usage' | 'provider' | 'model' | 'attempts' | 'misfit'> {
  // Only the provider understands its fields, and only models read the texts of files.
  const { kind: _, finishReason, usage = NO_USAGE, inputBreakdown, providerFields: __, ...origin } = message;
  const { provider, model, attempts, structured, fileTexts: ___, ...rest } = origin;
  rest satisfies NoFields;
  return {
    finish_reason: finishReason,
    ...(hasTokens(usage) && { usage: usageToWire(usage, inputBreakdown) }),
    ...(provider && { provider }),
    ...(model && { model }),
    ...(attempts && { attempts }),
    ...(structured?.fits === false && { misfit: structured.problem }),
  };
}

/** Whether the provider has reported any tokens, and not only that attempts were made. */
function hasTokens(usage: Usage): boolean {
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens } = usage;
  return [inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens].some((count) => count > 0);
}

/** Without a breakdown the attempt that ended the message made no request: its tokens are of earlier attempts. */
function usageToWire(usage: Usage, breakdown?: InputBreakdown): WireUsage {
  // The metrics of the turn have the other two.
  const { reasoningTokens: _, unreportedAttempts: __, ...shown } = usage;
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, costInUsd, ...rest } = shown;
  rest satisfies NoFields;
  return {
    input_tokens: inputTokens,
    output_tokens: outputTokens,
    cache_read_tokens: cacheReadTokens,
    cache_write_tokens: cacheWriteTokens,
    ...(costInUsd !== undefined && { cost_in_usd: dollars(costInUsd) }),
    input_tokens_breakdown: breakdownToWire(breakdown ?? { ...NO_BREAKDOWN, messages: inputTokens }),
  };
}

/** Without the digits that only come from adding fractions in binary: a token costs a multiple of 10^-12 USD. */
export function dollars(amount: number): number {
  return Number(amount.toFixed(12));
}

const NO_BREAKDOWN: InputBreakdown = { harness: 0, skills: 0, instructions: 0, toolDefinitions: 0, messages: 0 };

function breakdownToWire(breakdown: InputBreakdown): WireUsage['input_tokens_breakdown'] {
  const { harness, skills, instructions, toolDefinitions, messages, ...rest } = breakdown;
  rest satisfies NoFields;
  return { harness, skills, instructions, tool_definitions: toolDefinitions, messages };
}

/** A call of a message, durable (with a route, which is internal) or in progress. */
function toolCallToWire(call: ToolCallText & Partial<ToolCall>): WireModelMessage['tool_calls'][number] {
  const { id, name, arguments: args, info, providerFields, route: _, ...rest } = call;
  rest satisfies NoFields;
  return {
    id,
    type: 'function',
    function: { name, arguments: args },
    tool_info: toolInfoToWire(info),
    ...(providerFields && { provider_specific_fields: providerFields }),
  };
}

function toolInfoToWire(info: ToolInfo): WireToolInfo {
  if (info.type === 'system') {
    const { type: _, name, ...rest } = info;
    rest satisfies NoFields;
    return { type: 'truefoundry-system', name };
  }
  const { type, serverId, serverName, name, deferred = false, ...rest } = info;
  rest satisfies NoFields;
  return {
    type,
    server_id: serverId,
    server_name: serverName,
    name,
    mcp_server_id: serverId,
    mcp_server_name: serverName,
    is_deferred: deferred,
  };
}

export function deltaToWire(
  message: Pick<MessageHeader, 'id' | 'threadId'>,
  delta: MessageDelta,
): WireModelMessageDelta {
  const { content, refusal, reasoning, toolCalls, ...rest } = delta;
  rest satisfies NoFields;
  return {
    type: 'model.message.delta',
    id: message.id,
    thread_id: message.threadId,
    ...(content && { content }),
    ...(refusal && { refusal }),
    ...(reasoning && { reasoning_content: reasoning }),
    ...(toolCalls && { tool_calls: toolCalls.map(toolCallDeltaToWire) }),
  };
}

function toolCallDeltaToWire(call: ToolCallDelta): NonNullable<WireModelMessageDelta['tool_calls']>[number] {
  const { index, id, name, info, arguments: args, providerFields, ...rest } = call;
  rest satisfies NoFields;
  return {
    index,
    ...(id && { id, type: 'function' }),
    function: { ...(name && { name }), ...(args !== undefined && { arguments: args }) },
    ...(info && { tool_info: toolInfoToWire(info) }),
    ...(providerFields && { provider_specific_fields: providerFields }),
  };
}

function actionToWire(record: RequiredAction): WireRequiredAction {
  return record.kind === 'mcp.auth_required' ? authRequiredToWire(record) : callsToWire(record);
}

function authRequiredToWire(record: AuthRequired): WireRequiredAction {
  const { kind: type, id, at, threadId, servers, calls, ...rest } = record;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: null,
    mcp_servers: servers.map((server) => {
      const { id, name, authUrl, signInId: _, ...rest } = server;
      rest satisfies NoFields;
      return { id, name, auth_url: authUrl };
    }),
    servers: servers.map(({ name, authUrl }) => ({
      mcp_server_name: name,
      auth_url: authUrl,
      thread_ids: [threadId],
    })),
    tool_calls: calls.map((call) => callRef(call, at)),
  };
}

function callsToWire({ kind: type, id, at, threadId, calls, ...rest }: ActionRequired): WireRequiredAction {
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    tool_calls: calls.map((call) => callRef(call, at)),
  };
}

/** `at`: when the log asked for the answer. */
function callRef(call: PendingCall, at: string) {
  const {
    toolCallId,
    source,
    policy,
    elicitation,
    threadId: _,
    needs: __,
    signInId: ___,
    edited: ____,
    unknownOutcome,
    ...rest
  } = call;
  rest satisfies NoFields;
  return {
    id: toolCallId,
    source_event_id: source.messageId,
    event_id: source.messageId,
    ...(policy && { policy: policyToWire(policy, at) }),
    ...(elicitation && { elicitation: elicitationToWire(elicitation) }),
    ...(unknownOutcome !== undefined && { unknown_outcome: unknownOutcome }),
  };
}

function elicitationToWire(elicitation: PendingElicitation): WireElicitation {
  const { question, state: _, keptOpenBy: __, ...rest } = elicitation;
  rest satisfies NoFields;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the activity `callTool`
  const asked = JSON.parse(question) as Elicitation;
  if (asked.mode === 'url') return asked;
  const { mode, message, requestedSchema } = asked;
  return { mode, message, requested_schema: requestedSchema };
}

/** `at`: when the log asked for the approval. */
export function policyToWire(
  policy: ApprovalPolicy,
  at: string,
): NonNullable<WireRequiredAction['tool_calls'][number]['policy']> {
  // What happens at the expiry is a matter of the agent.
  const { onExpiry: _, ...shown } = policy;
  const { approvers, quorum, expiresInSeconds, escalate, mayEditArguments = true, ...rest } = shown;
  rest satisfies NoFields;
  const after = (seconds: number) => new Date(Date.parse(at) + seconds * 1000).toISOString();
  return {
    quorum,
    ...(approvers && { approvers }),
    ...(expiresInSeconds !== undefined && { expires_at: after(expiresInSeconds) }),
    ...(escalate && { escalates_at: after(escalate.afterSeconds) }),
    may_edit_arguments: mayEditArguments,
  };
}

function toolDecidedToWire(record: ToolDecided): SessionEvent {
  const { kind: type, id, at, threadId, toolCallId, decision, by, reason, edited, remaining, ...rest } = record;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    tool_call_id: toolCallId,
    decision,
    ...(by && { by: subjectToWire(by) }),
    ...(reason && { reason }),
    ...(edited && { arguments: objectOf(edited.arguments) }),
    remaining,
  };
}

function steeredToWire(record: UserSteered): SessionEvent {
  const { kind: type, id, at, by, content, sessionId, commandId: _, ...rest } = record;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: null,
    by: subjectToWire(by),
    content: contentToWire(content, fitting(textsOf(content)), sessionId),
  };
}

function pauseToWire({ kind: type, id, at, reason, by, ...rest }: TurnPaused): SessionEvent {
  rest satisfies NoFields;
  return { type, id, created_at: at, thread_id: null, reason, ...(by && { by: subjectToWire(by) }) };
}

function compactedToWire(record: ContextCompacted): SessionEvent {
  // The metrics of the turn have the usage, and the found tools are for the model.
  const { foundTools: _, usage: __, isShown: ___, ...shown } = record;
  const { kind: type, id, at, threadId, through, summary, tokensBefore, tokensAfter, ...rest } = shown;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    through: sequenceNumber({ ordinal: through, frame: 0 }),
    summary: summary ?? null,
    tokens_before: tokensBefore,
    tokens_after: tokensAfter,
  };
}
