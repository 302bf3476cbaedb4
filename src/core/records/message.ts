import type { RecordBase, WithoutId } from './base.ts';
import type { ToolCall } from './calls.ts';
import type { FileText, StoredFile } from './input.ts';
import { type McpInitialized, serversConnected } from './servers.ts';
import type { Usage } from './usage.ts';

/** An estimate of how the input tokens of a message are divided: the parts add up to its `usage.inputTokens`. */
export interface InputBreakdown {
  /** The text that the server adds to the agent's instructions. */
  harness: number;
  skills: number;
  instructions: number;
  toolDefinitions: number;
  messages: number;
}

export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter' | 'cancelled' | 'error';

export interface ModelMessage extends RecordBase {
  kind: 'model.message';
  threadId: string;
  content: string;
  refusal: string;
  reasoning: string;
  toolCalls: ToolCall[];
  /** The order of its parts, with the searches of the provider: see `storedSections`. Absent: it is one section. */
  sections?: string;
  finishReason: FinishReason;
  usage?: Usage;
  inputBreakdown?: InputBreakdown;
  /** Opaque fields of the provider, such as reasoning signatures. */
  providerFields?: Record<string, unknown>;
  /** The provider whose model wrote the message, by its name on this server; absent if unknown or not called. */
  provider?: string;
  /** The model's name at that provider. */
  model?: string;
  /** The attempts before the one that wrote the message, if there were any: the provider failed. */
  attempts?: FailedAttempt[];
  /** The texts of files that were extracted for the message's model call; later calls use them. */
  fileTexts?: FileText[];
  /** The message is the last one of the conversation that the client gave: no model was called for it. */
  isGiven?: true;
  /** Code has made its calls: no model was called. */
  fromCode?: true;
  /** A placeholder for a damaged record: see `lostRecord`. Stored records do not have it. */
  isLost?: true;
  /** The model's speech, in place of text or beside it. */
  audio?: SpokenAudio;
  /** The images that the model has drawn. */
  images?: MadeImage[];
  /** The check of an answer for which the agent has a JSON Schema; `isAnyJson`: it has none, and requires JSON. */
  structured?: { fits: true } | { fits: false; problem: string; isAnyJson?: true };
}

export interface MadeImage {
  file: StoredFile;
  /** Opaque fields of its provider. */
  providerFields?: Record<string, unknown>;
}

export interface SpokenAudio {
  file: StoredFile;
  /** The text that stands for it in later model calls. */
  transcript: string;
  /** The id at its provider. */
  id?: string;
  /** In hertz, if the file has samples without a header. */
  sampleRate?: number;
  channels?: number;
}

/** Whether a message is not accepted as the answer. The model is called for another one, unless the turn ends. */
export function violatesSchema({ structured }: ModelMessage): boolean {
  return structured?.fits === false;
}

export interface FailedAttempt {
  provider: string;
  model: string;
  /** The class of the failure. */
  failure: string;
}

/** The fields of a message that are fixed before its model call. */
export interface MessagePlan {
  threadId: string;
  messageId: string;
  /** `created_at` of the message: the same for every attempt. */
  createdAt: string;
  /** The conversation ends with the turn's record at this ordinal. */
  upTo: number;
  /** The agent has MCP servers, and the records of the call begin with the one of their connections. */
  connectsServers?: true;
  /** How many sub-agents the message may start; default: none. */
  mayStart?: number;
}

/** The records of a model call from which nothing arrived; `usage` is undefined if no attempt was made. */
export function emptyResponse(
  plan: MessagePlan,
  finishReason: FinishReason,
  usage: Usage | undefined,
): (ModelMessage | WithoutId<McpInitialized>)[] {
  const { messageId: id, createdAt: at, threadId } = plan;
  const message: ModelMessage = {
    kind: 'model.message',
    id,
    at,
    threadId,
    content: '',
    refusal: '',
    reasoning: '',
    toolCalls: [],
    finishReason,
    ...(usage && { usage }),
  };
  return plan.connectsServers ? [serversConnected(plan, { servers: [] }), message] : [message];
}

/** A message whose beginning readers may have seen. */
export type PlannedMessage = Pick<MessagePlan, 'messageId' | 'createdAt'>;
