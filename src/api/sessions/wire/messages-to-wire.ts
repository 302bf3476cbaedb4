import type { z } from 'zod';
import type { MessageDelta, MessageText, ToolCallDelta, ToolCallText } from '../../../core/message.ts';
import type { ToolCall, ToolInfo } from '../../../core/records/calls.ts';
import type { InputBreakdown, ModelMessage } from '../../../core/records/message.ts';
import { NO_USAGE, type Usage } from '../../../core/records/usage.ts';
import { truncateMiddle, fairShare } from '../../../core/text.ts';
import { dollars } from '../../../lib/dollars.ts';
import { fieldsToWire } from '../../http/wire-fields.ts';
import {
  inputBreakdown,
  mcpToolInfo,
  modelMessageDelta,
  toolCall,
  usage as wireUsage,
  type WireModelMessage,
  type WireModelMessageDelta,
  type WireToolInfo,
} from './events.ts';
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

const FIELDS = { finish_reason: true, usage: true, provider: true, model: true, attempts: true, misfit: true } as const;
const ended = modelMessageDelta.pick(FIELDS);

/** The fields of a message beside its text: its last delta carries them. */
export function messageEnd(
  message: Omit<Bare<ModelMessage>, keyof MessageHeader | keyof MessageText>,
): z.infer<typeof ended> {
  const { usage = NO_USAGE, inputBreakdown, provider, model, structured, ...fields } = message;
  const shown = {
    ...fields,
    provider: provider || undefined,
    model: model || undefined,
    usage: hasTokens(usage) ? usageToWire(usage, inputBreakdown) : undefined,
    misfit: structured?.fits === false ? structured.problem : undefined,
  };
  // Providers' fields are for the provider, texts of files for models; only agents of runs make audio and images.
  return fieldsToWire(
    ended,
    shown,
    'kind',
    'providerFields',
    'fileTexts',
    'isGiven',
    'audio',
    'images',
    'isLost',
    'fromCode',
  );
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
function usageToWire(usage: Usage, breakdown?: InputBreakdown) {
  const parts = breakdown ?? { ...NO_BREAKDOWN, messages: usage.inputTokens };
  const shown = {
    ...usage,
    costInUsd: usage.costInUsd && dollars(usage.costInUsd),
    inputTokensBreakdown: fieldsToWire(inputBreakdown, parts),
  };
  // The metrics of the turn have the first two. This API does not distinguish kinds of tokens.
  return fieldsToWire(wireUsage, shown, 'reasoningTokens', 'unreportedAttempts', 'media');
}

const NO_BREAKDOWN: InputBreakdown = { harness: 0, skills: 0, instructions: 0, toolDefinitions: 0, messages: 0 };

/** A call of a message, durable (with a route, which is internal) or in progress. */
function toolCallToWire(call: ToolCallText & Partial<ToolCall>) {
  const { name, arguments: args, info, providerFields, ...fields } = call;
  const shown = {
    ...fields,
    type: 'function' as const,
    function: { name, arguments: args },
    toolInfo: toolInfoToWire(info),
    providerSpecificFields: providerFields,
  };
  return fieldsToWire(toolCall, shown, 'route');
}

function toolInfoToWire(info: ToolInfo): WireToolInfo {
  if (info.type === 'system') {
    const { type: _, name, ...rest } = info;
    rest satisfies NoFields;
    return { type: 'truefoundry-system', name };
  }
  const { deferred: isDeferred = false, ...fields } = info;
  const { serverId: mcpServerId, serverName: mcpServerName } = info;
  return fieldsToWire(mcpToolInfo, { ...fields, mcpServerId, mcpServerName, isDeferred });
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
