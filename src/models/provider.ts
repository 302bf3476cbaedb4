import type { StoredFile } from '../core/records/input.ts';
import type { FinishReason } from '../core/records/message.ts';
import type { Usage } from '../core/records/usage.ts';
import type { Citation, HostedPart } from '../core/sections.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import type { AgentSpec, ModelOptions, ModelParams, ToolChoice, WebSearch } from '../spec/agent-spec.ts';

/** A tool as it is offered to a model. */
export interface OfferedTool {
  name: string;
  description: string;
  /** JSON Schema. */
  parameters: Record<string, unknown>;
}

/** One model call, independent of the provider. */
export interface ModelRequest {
  model: string;
  params: ModelParams;
  options?: Omit<ModelOptions, 'tool_choice'>;
  system: string;
  /** How much of `system` the agent's author wrote; the server added the rest. */
  instructionsLength: number;
  /** How much of `system` names the agent's skills. */
  skillsLength: number;
  transcript: TranscriptItem[];
  tools: OfferedTool[];
  /** All of the tools are the server's own, so a model that takes none may be called without them. */
  hasOptionalTools?: boolean;
  /** With `none` the tools are sent nevertheless: providers require those of earlier calls. */
  toolChoice?: ToolChoice;
  /** The provider may search the web. */
  webSearch?: WebSearch;
  responseFormat: AgentSpec['response_format'];
  /** How many attempts at this message were given up because the model sent nothing: each doubles the time limit. */
  stalls?: number;
  /** Bytes of the files in the transcript, in base64. */
  fileContent: (file: StoredFile) => Promise<string>;
}

/** A part of a model's message. */
export interface ModelChunk {
  content?: string;
  refusal?: string;
  reasoning?: string;
  toolCalls?: ToolCallChunk[];
  /** A whole image. */
  image?: { mimeType: string; base64: string; providerFields?: Record<string, unknown> };
  /** A piece of the model's speech, in the format of the request's options. */
  audio?: {
    id?: string;
    /** Base64. */
    data?: string;
    transcript?: string;
  };
  /** A part begins, and the text or reasoning that follows belongs to it. */
  begins?: 'text' | 'reasoning';
  /** What the provider does itself, or what it has found; a later call with the same id replaces the one before. */
  hosted?: HostedPart[];
  /** Citations of the text so far, or, if none is in progress, of the last one. */
  citations?: Citation[];
  /** Fields of the message that only the provider understands, and expects back with it. */
  providerFields?: Record<string, unknown>;
  finishReason?: FinishReason;
  usage?: Usage;
}

export interface ToolCallChunk {
  index: number;
  id?: string;
  name?: string;
  arguments?: string;
  providerFields?: Record<string, unknown>;
}

/** The result of the lookup of a model at its provider. */
export interface FoundModel {
  /** False only if the provider's response names the model as missing. */
  exists: boolean;
  /** The size of the model's context in tokens, if it names one. */
  contextTokens?: number;
  /** The names of the models that it lists, if this one is not among them. */
  others?: string[];
}

export interface ModelProvider {
  /**
   * Streams a message. It is complete if a `finishReason` was received and the iteration ended.
   * @throws ModelError
   */
  stream: (request: ModelRequest, signal: AbortSignal) => AsyncIterable<ModelChunk>;
  /** Looks a model up at the provider; undefined if there is no response that can be read. Never rejects. */
  find: (model: string) => Promise<FoundModel | undefined>;
}

/** The calls of a provider, which wrappers may limit, measure or change: see `openProviders`. */
export type ModelStream = ModelProvider['stream'];

/** The maximum of each limit of silence, doubled or not: an attempt at a message has a time-out of two hours. */
export const MAX_SILENCE_SECONDS = 3_600;

/** How long a model may send nothing, in seconds. */
export interface SilenceLimits {
  /** Until the first piece of its message: it may load, read a long prompt, or think without output. */
  firstChunkSeconds: number;
  /** Between two pieces. */
  idleSeconds: number;
}

/** The endpoint of a provider. */
export interface ProviderAccess {
  apiKey: string;
  /** Undefined for the provider's own. */
  baseUrl: string | undefined;
  /** In addition to those of the protocol. */
  headers: Record<string, string>;
  /** Called at each response, also at an error. */
  onResponse?: () => void;
}
