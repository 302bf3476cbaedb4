import { responseText } from '../../../core/projection.ts';
import { truncateMiddle, fairShare } from '../../../core/text.ts';
import {
  emptyText,
  type MessageDelta,
  type MessageText,
  type ToolCallDelta,
  type ToolCallText,
} from '../../../core/message.ts';
import {
  NO_USAGE,
  type ActionRequired,
  type InputBreakdown,
  type InputItem,
  type LogRecord,
  type ModelMessage,
  type StoredFile,
  type ToolInfo,
  type ToolResponse,
  type TurnDone,
  type TurnOutcome,
  type Usage,
  type UserContentPart,
} from '../../../core/records.ts';
import type { Subject } from '../../../core/subject.ts';
import type {
  SessionEvent,
  WireModelMessage,
  WireModelMessageDelta,
  WireRequiredAction,
  WireSubject,
  WireToolInfo,
  WireTurnDoneState,
  WireTurnMetrics,
  WireUsage,
} from './events.ts';
import type { WireInputItem } from './input.ts';
import type { Catalog } from '../../../catalog/catalog.ts';
import type { SessionRow } from '../../../catalog/schema.ts';
import type { AnySessionResource, DraftResource, SessionResource } from './resources.ts';

/** A `data:` line stays below 1 MiB, or the Python client breaks; texts inside one event share this much of it. */
const MAX_TEXT_BYTES = 512 * 1024;

/** A durable record as clients see it; one event, folded. */
export function toWire(record: LogRecord): SessionEvent {
  switch (record.kind) {
    case 'turn.created':
      return {
        type: 'turn.created',
        id: record.id,
        created_at: record.at,
        thread_id: null,
        turn_id: record.turnId,
        previous_turn_id: record.previousTurnId,
        input: inputToWire(record.input, record.sessionId),
        state: { status: 'running' },
        created_by: subjectToWire(record.createdBy),
      };
    case 'model.message':
      return messageToWire(record);
    case 'tool.response':
      return {
        type: 'tool.response',
        id: record.id,
        created_at: record.at,
        thread_id: record.threadId,
        tool_call_id: record.toolCallId,
        content: contentOf(record),
        outcome: record.outcome,
      };
    case 'mcp.initialize':
      return {
        type: 'mcp.initialize',
        id: record.id,
        created_at: record.at,
        thread_id: record.threadId,
        mcp_servers: record.servers.map(({ id, name, sessionId, transport }) => ({
          id,
          name,
          session_id: sessionId,
          // Clients know two words, and are strict: a program of ours goes by the one that is not the old transport.
          transport_type: transport === 'sse' ? 'sse' : 'streamable-http',
        })),
        content: record.servers.map(({ name, sessionId }) => ({ mcp_server_name: name, session_id: sessionId })),
      };
    case 'tool.approval_required':
    case 'tool.response_required':
      return actionToWire(record);
    case 'turn.done':
      return {
        type: 'turn.done',
        id: record.id,
        created_at: record.at,
        thread_id: null,
        state: stateToWire(record),
      };
  }
}

/** The text of a result; one that was cut ends with the address of the whole. */
function contentOf(record: ToolResponse): string {
  const text = responseText(record);
  if (!record.fullText) return text;
  const { name, sessionId } = record.fullText;
  return `${text}\n[${name}: GET ${fileUrl(record.fullText, sessionId)}]`;
}

export function subjectToWire({ subjectId, subjectType, subjectSlug }: Subject): WireSubject {
  return { subject_id: subjectId, subject_type: subjectType, subject_slug: subjectSlug };
}

export function stateToWire({ at, end, usage }: TurnDone): WireTurnDoneState {
  const ended = { completed_at: at, metrics: metrics(usage) };
  switch (end.status) {
    case 'done':
      return {
        status: 'done',
        output: output(end),
        required_actions: end.requiredActions.map(actionToWire),
        ...ended,
      };
    case 'cancelled':
      return { status: 'cancelled', reason: end.reason, ...ended };
    case 'error':
      return { status: 'error', message: end.message, ...ended };
  }
}

function output(end: Extract<TurnOutcome, { status: 'done' }>): WireModelMessage | null {
  if (!end.output) return null;
  const { content, refusal, reasoning } = end.output;
  const share = fairShare([content, refusal, reasoning], MAX_TEXT_BYTES);
  const fit = (text: string) =>
    truncateMiddle(text, share, (n) => `[${n} characters left out; the events of the turn have all]`);
  return messageToWire({ ...end.output, content: fit(content), refusal: fit(refusal), reasoning: fit(reasoning) });
}

function metrics(usage: Usage): WireTurnMetrics {
  return {
    total_input_tokens: usage.inputTokens,
    total_output_tokens: usage.outputTokens,
    total_tokens: usage.inputTokens + usage.outputTokens,
    total_cache_read_tokens: usage.cacheReadTokens,
    total_cache_write_tokens: usage.cacheWriteTokens,
    total_reasoning_tokens: usage.reasoningTokens,
    unreported_attempts: usage.unreportedAttempts ?? 0,
  };
}

export function inputToWire(input: InputItem[], sessionId: string): WireInputItem[] {
  const texts = input.flatMap((item) => {
    if (item.type === 'user.tool_approval') return 'reason' in item.approval ? [item.approval.reason ?? ''] : [];
    if (typeof item.content === 'string') return [item.content];
    return item.content.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  });
  const share = fairShare(texts, MAX_TEXT_BYTES);
  const fit = (text: string) =>
    truncateMiddle(text, share, (n) => `[${n} characters left out here; the model got all of them]`);
  const partToWire = (part: UserContentPart) =>
    part.type === 'text'
      ? { type: 'text' as const, text: fit(part.text) }
      : { type: 'file' as const, name: part.name, data: fileData(part, sessionId) };
  return input.map((item): WireInputItem => {
    switch (item.type) {
      case 'user.message': {
        const { type, content } = item;
        return { type, content: typeof content === 'string' ? fit(content) : content.map(partToWire) };
      }
      case 'user.tool_approval': {
        const { type, threadId, toolCallId, approval } = item;
        const shown = 'reason' in approval ? { ...approval, reason: fit(approval.reason ?? '') } : approval;
        return { type, thread_id: threadId, tool_call_id: toolCallId, approval: shown };
      }
      case 'user.tool_response': {
        const { type, threadId, toolCallId, content } = item;
        return { type, thread_id: threadId, tool_call_id: toolCallId, content: fit(content) };
      }
    }
  });
}

function fileData(file: StoredFile, sessionId: string): string {
  return 'blob' in file ? fileUrl(file, sessionId) : `data:${file.mimeType};base64,${file.base64}`;
}

/** Where a client gets the bytes of a file of its session: a path of this server. */
export function fileUrl(file: { blob: string; name: string; mimeType: string }, sessionId: string): string {
  const query = new URLSearchParams({ name: file.name, type: file.mimeType });
  return `/v1/agents/sessions/${sessionId}/files/${file.blob}?${query.toString()}`;
}

/** The base that opens a message on a stream: empty, or with the text that the message has already. */
export function messageBase(
  message: { id: string; at: string; threadId: string },
  { content, refusal, reasoning, toolCalls }: MessageText = emptyText(),
): WireModelMessage {
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

function messageToWire(message: ModelMessage): WireModelMessage {
  return { ...messageBase(message, message), ...messageEnd(message) };
}

/** The end of a message: what its last delta carries. */
export function messageEnd(message: ModelMessage): Pick<WireModelMessageDelta, 'finish_reason' | 'usage'> {
  const { finishReason, usage = NO_USAGE, inputBreakdown } = message;
  return { finish_reason: finishReason, ...(hasTokens(usage) && { usage: usageToWire(usage, inputBreakdown) }) };
}

/** Whether anything was reported, and not only that attempts were made. */
function hasTokens(usage: Usage): boolean {
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens } = usage;
  return [inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens].some((count) => count > 0);
}

/** Without a breakdown no request was made by the attempt that ended the message: its tokens are of attempts before. */
function usageToWire(usage: Usage, breakdown?: InputBreakdown): WireUsage {
  const {
    harness = 0,
    skills = 0,
    instructions = 0,
    toolDefinitions = 0,
    messages = usage.inputTokens,
  } = breakdown ?? {};
  return {
    input_tokens: usage.inputTokens,
    output_tokens: usage.outputTokens,
    cache_read_tokens: usage.cacheReadTokens,
    cache_write_tokens: usage.cacheWriteTokens,
    input_tokens_breakdown: { harness, skills, instructions, tool_definitions: toolDefinitions, messages },
  };
}

function toolCallToWire(call: ToolCallText): WireModelMessage['tool_calls'][number] {
  return {
    id: call.id,
    type: 'function',
    function: { name: call.name, arguments: call.arguments },
    tool_info: toolInfoToWire(call.info),
    ...(call.providerFields && { provider_specific_fields: call.providerFields }),
  };
}

function toolInfoToWire(info: ToolInfo): WireToolInfo {
  if (info.type === 'system') return { type: 'truefoundry-system', name: info.name };
  return {
    type: 'mcp',
    server_id: info.serverId,
    server_name: info.serverName,
    name: info.name,
    mcp_server_id: info.serverId,
    mcp_server_name: info.serverName,
    is_deferred: info.deferred === true,
  };
}

export function deltaToWire(message: { id: string; threadId: string }, delta: MessageDelta): WireModelMessageDelta {
  return {
    type: 'model.message.delta',
    id: message.id,
    thread_id: message.threadId,
    ...(delta.content && { content: delta.content }),
    ...(delta.refusal && { refusal: delta.refusal }),
    ...(delta.reasoning && { reasoning_content: delta.reasoning }),
    ...(delta.toolCalls && { tool_calls: delta.toolCalls.map(toolCallDeltaToWire) }),
  };
}

function toolCallDeltaToWire(call: ToolCallDelta): NonNullable<WireModelMessageDelta['tool_calls']>[number] {
  return {
    index: call.index,
    ...(call.id && { id: call.id, type: 'function' }),
    function: {
      ...(call.name && { name: call.name }),
      ...(call.arguments !== undefined && { arguments: call.arguments }),
    },
    ...(call.info && { tool_info: toolInfoToWire(call.info) }),
    ...(call.providerFields && { provider_specific_fields: call.providerFields }),
  };
}

function actionToWire(record: ActionRequired): WireRequiredAction {
  return {
    type: record.kind,
    id: record.id,
    created_at: record.at,
    thread_id: record.threadId,
    tool_calls: record.calls.map(({ toolCallId, source }) => ({
      id: toolCallId,
      source_event_id: source.messageId,
      event_id: source.messageId,
    })),
  };
}

/** How sessions and drafts are shown. */

export function toSession(session: SessionRow): SessionResource {
  const { agent_name: agentName, agent_version: agentVersion } = session;
  return { type: 'session', ...commonFields(session), agent_name: agentName ?? '', agent_version: agentVersion ?? 0 };
}

export async function toDraft(session: SessionRow, { agents }: Catalog): Promise<DraftResource> {
  return {
    type: 'session/draft',
    ...commonFields(session),
    agent_name: session.agent_name,
    agent_spec: await agents.spec(session.spec_hash),
  };
}

export async function toSessionOrDraft(session: SessionRow, catalog: Catalog): Promise<AnySessionResource> {
  return session.type === 'session' ? toSession(session) : toDraft(session, catalog);
}

/** The fields that sessions and drafts share. */
function commonFields(session: SessionRow) {
  const { id, title, created_at, updated_at, metadata } = session;
  const owner = subjectToWire({
    subjectId: session.subject_id,
    subjectType: session.subject_type,
    subjectSlug: session.subject_slug,
  });
  return {
    id,
    title,
    created_by_subject: owner,
    created_at,
    updated_at,
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- validated before it was stored
    ...(metadata !== null && { metadata: JSON.parse(metadata) as Record<string, unknown> }),
  };
}
