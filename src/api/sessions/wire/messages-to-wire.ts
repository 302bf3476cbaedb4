import type { MessageDelta, MessageText, ToolCallDelta, ToolCallText } from '../../../core/message.ts';
import {
  NO_USAGE,
  type InputBreakdown,
  type ModelMessage,
  type ToolCall,
  type ToolInfo,
  type Usage,
} from '../../../core/records.ts';
import { truncateMiddle, fairShare } from '../../../core/text.ts';
import { dollars } from '../../../lib/dollars.ts';
import type { WireModelMessage, WireModelMessageDelta, WireToolInfo, WireUsage } from './events.ts';
import { MAX_TEXT_BYTES } from './input-to-wire.ts';
import type { Bare, NoFields } from './no-fields.ts';

/** The event that opens a message on a stream, with the text that the message has already. */
export function messageBase(message: MessageHeader, text: MessageText): WireModelMessage {
  // Clients of sessions get the texts as a whole: their agents have no searches of providers.
  const { content, refusal, reasoning, toolCalls, sections: _, ...rest } = text;
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

export function messageToWire(message: ModelMessage): WireModelMessage {
  const { content, refusal, reasoning, toolCalls } = message;
  return { ...messageBase(message, { content, refusal, reasoning, toolCalls }), ...messageEnd(message) };
}

/** The fields of a message beside its text: its last delta carries them. */
export function messageEnd(
  message: Omit<Bare<ModelMessage>, keyof MessageHeader | keyof MessageText>,
): Pick<WireModelMessageDelta, 'finish_reason' | 'usage' | 'provider' | 'model' | 'attempts' | 'misfit'> {
  // Only the provider understands its fields, only models read the texts of files, and only agents of runs speak and draw.
  const { kind: _, finishReason, usage = NO_USAGE, inputBreakdown, providerFields: __, ...origin } = message;
  const {
    provider,
    model,
    attempts,
    structured,
    fileTexts: ___,
    isGiven: ____,
    audio: _____,
    images: ______,
    isLost: _______,
    ...rest
  } = origin;
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

/** A message as the output of a turn or a thread, with texts that fit in the event of its end. */
export function shortened(message: ModelMessage, maxBytes = MAX_TEXT_BYTES): WireModelMessage {
  const { content, refusal, reasoning } = message;
  const share = fairShare([content, refusal, reasoning], maxBytes);
  const fit = (text: string) =>
    truncateMiddle(text, share, (n) => `[${n} characters left out; the events of the turn contain them]`);
  return messageToWire({ ...message, content: fit(content), refusal: fit(refusal), reasoning: fit(reasoning) });
}

/** The value of an output that fits the JSON Schema of its agent. Its length was checked with its schema. */
export function outputJson({ structured, content }: ModelMessage): { output_json?: unknown } {
  return structured?.fits ? { output_json: JSON.parse(content) } : {};
}

/** Whether the provider has reported any tokens, and not only that attempts were made. */
function hasTokens(usage: Usage): boolean {
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens } = usage;
  return [inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens].some((count) => count > 0);
}

/** Without a breakdown the attempt that ended the message made no request: its tokens are of earlier attempts. */
function usageToWire(usage: Usage, breakdown?: InputBreakdown): WireUsage {
  // The metrics of the turn have these two.
  const { reasoningTokens: _, unreportedAttempts: __, ...more } = usage;
  // This API does not tell the kinds of tokens apart.
  const { media: ___, ...shown } = more;
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
  const { content, refusal, reasoning, toolCalls, sections: _, ...rest } = delta;
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
