import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4File,
  LanguageModelV4FilePart,
  LanguageModelV4FinishReason,
  LanguageModelV4Message,
  LanguageModelV4Prompt,
  LanguageModelV4StreamPart,
  LanguageModelV4TextPart,
  LanguageModelV4ToolResultOutput,
  LanguageModelV4Usage,
  SharedV4ProviderMetadata,
  SharedV4ProviderOptions,
} from '@ai-sdk/provider';
import { describeFile, isImage } from '../../core/files.ts';
import type { UserContentPart } from '../../core/records/input.ts';
import type { FinishReason } from '../../core/records/message.ts';
import { addUsage, mediaUsage, NO_USAGE, type MediaTokens, type Usage } from '../../core/records/usage.ts';
import type { ToolItem } from '../../core/transcript.ts';
import type { Fetch } from '../../lib/guarded-fetch.ts';
import { acceptedId, acceptedName } from '../accepted.ts';
import { aiSdkFailure } from './failure.ts';
import { ResponseEnd } from '../response-end.ts';
import { guardedResponse, type RequestGuard } from '../guarded-response.ts';
import type { HostedSearch } from './hosted-search.ts';
import { blockFields, type Block } from '../message-blocks.ts';
import { ModelError } from '../model-error.ts';
import { createModelFetch } from '../model-fetch.ts';
import { findModel, type LookupRequest } from '../model-lookup.ts';
import { portableSchema } from '../portable-schema.ts';
import type { ModelChunk, ModelProvider, ModelRequest, ProviderAccess, SilenceLimits } from '../provider.ts';
import { assistantMessage } from './assistant-message.ts';

/** A message in several responses. The provider ends all but the last one with a pause. */
export interface PausedResponse {
  /** Takes an event of a response. */
  add: (event: unknown) => void;
  /** Whether the response that was read ended with a pause. */
  readonly isPaused: boolean;
  /** The body of the next request: the first one's, with the content so far. */
  continued: (body: string) => string;
}

/** What distinguishes the providers whose protocol an adapter of the AI SDK speaks. */
export interface Dialect {
  /** The key of the provider's options and metadata. */
  key: string;
  model: (id: string, fetch: typeof globalThis.fetch) => LanguageModelV4;
  /** The provider's own options for a request. */
  options: (request: ModelRequest) => SharedV4ProviderOptions[string];
  /** The options that mark the end of a part of the request to be cached. */
  cached?: (request: ModelRequest) => SharedV4ProviderOptions[string] | undefined;
  /** The types of audio that it takes, with its own names for them. Default: none. */
  audioTypes?: ReadonlyMap<string, string>;
  search?: HostedSearch;
  /** The id of a call as the provider accepts it. Default: `acceptedId`. */
  callId?: (id: string) => string;
  /** The conversation as the provider accepts it. Default: as it is. */
  conversation?: (prompt: LanguageModelV4Prompt) => LanguageModelV4Prompt;
  /** Whether an event is the last one of a message. Default: the adapter detects it before the connection ends. */
  isLast?: (event: unknown) => boolean;
  /** Continues the messages that the provider pauses. Default: it pauses none. */
  paused?: () => PausedResponse;
  /** The usage in an event of the stream, which is reported even if the response breaks off. */
  usageIn: (event: unknown) => Usage | undefined;
  /** The tokens that are not text, in the usage as the provider has sent it. */
  mediaIn?: (usage: unknown) => MediaTokens;
  /** The failure that an event reports. Default: the adapter detects it. */
  failureIn?: (event: unknown) => ModelError | undefined;
  /** The model's explanation of its refusal. */
  refusalIn?: (metadata: SharedV4ProviderMetadata[string]) => string | undefined;
  lookup: LookupRequest;
}

/** Google's adapter continues a message that reached the limit of one request, and Anthropic pauses long messages. */
const MAX_CONTINUATIONS = 10;

/** The adapters validate each event against unions: 24,000 values took 440 ms, and these take less than 100 ms. */
const MAX_VALUES = 5_000;

/** A provider whose protocol an adapter of the AI SDK speaks. Only the adapter is used: it makes no retries of its own. */
export function aiSdkProvider(
  dialect: Dialect,
  { onResponse, ...silence }: SilenceLimits & Pick<ProviderAccess, 'onResponse'>,
): ModelProvider {
  const modelFetch = createModelFetch(silence.idleSeconds * 1000, { maxValues: MAX_VALUES, onResponse });
  return {
    async *stream(request, signal) {
      const options = await callOptions(request, dialect);
      yield* guardedResponse({ signal, silence, stalls: request.stalls, failureOf: aiSdkFailure }, (guard) =>
        readResponse(request.model, options, { dialect, modelFetch, ...guard }),
      );
    },
    find: (model) => findModel(modelFetch, dialect.lookup, model),
  };
}

async function* readResponse(
  model: string,
  options: LanguageModelV4CallOptions,
  { dialect, modelFetch, controller, watch }: { dialect: Dialect; modelFetch: Fetch } & RequestGuard,
): AsyncGenerator<ModelChunk> {
  let requests = 0;
  const end = new ResponseEnd();
  const paused = dialect.paused?.();
  const fetch: typeof globalThis.fetch = async (input, init) => {
    if (requests > MAX_CONTINUATIONS)
      throw new ModelError(
        'bad_request',
        `the model continued its answer ${MAX_CONTINUATIONS} times without coming to its end`,
      );
    requests += 1;
    const body = typeof init?.body === 'string' && paused ? { body: paused.continued(init.body) } : {};
    const response = await modelFetch(input instanceof Request ? input.url : input, { ...init, ...body });
    return response.ok ? end.watch(watch(response)) : response;
  };
  const adapter = dialect.model(model, fetch);
  const parts = new StreamParts(dialect, paused);
  let isPaused: boolean | undefined;
  try {
    do {
      const { stream } = await adapter.doStream({ ...options, abortSignal: controller.signal, includeRawChunks: true });
      for await (const part of stream) {
        if (part.type === 'raw') {
          paused?.add(part.rawValue);
          if (dialect.isLast?.(part.rawValue)) end.reached();
        }
        yield* parts.chunks(part);
      }
      isPaused = paused?.isPaused;
    } while (isPaused);
  } finally {
    end.stop();
  }
}

/** Converts the parts of the streams of a message to chunks. */
class StreamParts {
  readonly #dialect: Dialect;
  readonly #blocks = new Map<string, Block & { type: 'text' | 'reasoning' }>();
  readonly #calls = new Map<string, { index: number; hasArguments: boolean }>();
  readonly #paused: PausedResponse | undefined;
  readonly #search: ReturnType<HostedSearch['reader']> | undefined;
  /** The usage of the streams that ended with a pause. */
  #usageBefore = NO_USAGE;

  constructor(dialect: Dialect, paused: PausedResponse | undefined) {
    this.#dialect = dialect;
    this.#paused = paused;
    this.#search = dialect.search?.reader();
  }

  *chunks(part: LanguageModelV4StreamPart): Generator<ModelChunk> {
    const searched = this.#search?.(part);
    if (searched) yield searched;
    switch (part.type) {
      case 'text-start':
      case 'reasoning-start':
        this.#grow(part.id, part.type === 'text-start' ? 'text' : 'reasoning', '', part.providerMetadata);
        yield { begins: part.type === 'text-start' ? 'text' : 'reasoning' };
        return;
      case 'text-delta':
        this.#grow(part.id, 'text', part.delta, part.providerMetadata);
        if (part.delta) yield { content: part.delta };
        return;
      case 'reasoning-delta':
        this.#grow(part.id, 'reasoning', part.delta, part.providerMetadata);
        if (part.delta) yield { reasoning: part.delta };
        return;
      case 'text-end':
      case 'reasoning-end': {
        const type = part.type === 'text-end' ? 'text' : 'reasoning';
        const block = this.#grow(part.id, type, '', part.providerMetadata);
        this.#blocks.delete(part.id);
        const citations = this.#dialect.search?.cited?.(block.fields) ?? [];
        delete block.fields['citations'];
        yield { providerFields: blockFields(block), ...(citations.length > 0 && { citations }) };
        return;
      }
      case 'tool-input-start':
        if (part.providerExecuted) return;
        yield this.#begin(part.id, part.toolName, part.providerMetadata);
        return;
      case 'tool-input-delta':
        yield* this.#arguments(part.id, part.delta);
        return;
      case 'tool-call':
        if (part.providerExecuted) return;
        if (!this.#calls.has(part.toolCallId)) yield this.#begin(part.toolCallId, part.toolName, part.providerMetadata);
        if (!this.#calls.get(part.toolCallId)?.hasArguments) yield* this.#arguments(part.toolCallId, part.input);
        return;
      case 'file':
        yield* this.#image(part);
        return;
      case 'raw': {
        const failure = this.#dialect.failureIn?.(part.rawValue);
        if (failure) throw failure;
        const usage = this.#dialect.usageIn(part.rawValue);
        if (usage) yield { usage: addUsage(this.#usageBefore, usage) };
        return;
      }
      case 'error':
        throw part.error;
      case 'finish':
        yield this.#finish(part);
        return;
      default:
        return;
    }
  }

  #grow(
    id: string,
    type: 'text' | 'reasoning',
    delta: string,
    metadata: SharedV4ProviderMetadata | undefined,
  ): Block & { type: 'text' | 'reasoning' } {
    const block = this.#blocks.get(id) ?? { type, length: 0, fields: {} };
    block.length += delta.length;
    Object.assign(block.fields, metadata?.[this.#dialect.key]);
    this.#blocks.set(id, block);
    return block;
  }

  #begin(id: string, name: string, metadata: SharedV4ProviderMetadata | undefined): ModelChunk {
    const index = this.#calls.size;
    this.#calls.set(id, { index, hasArguments: false });
    const fields = metadata?.[this.#dialect.key];
    return {
      toolCalls: [{ index, id, name, ...(fields && { providerFields: fields }) }],
      providerFields: blockFields({ type: 'call' }),
    };
  }

  *#arguments(id: string, delta: string): Generator<ModelChunk> {
    const call = this.#calls.get(id);
    if (!call || !delta) return;
    call.hasArguments = true;
    yield { toolCalls: [{ index: call.index, arguments: delta }] };
  }

  *#image({ mediaType, data, providerMetadata }: LanguageModelV4File): Generator<ModelChunk> {
    if (!isImage({ mimeType: mediaType }) || data.type !== 'data') return;
    const base64 = typeof data.data === 'string' ? data.data : Buffer.from(data.data).toString('base64');
    const fields = providerMetadata?.[this.#dialect.key];
    yield { image: { mimeType: mediaType, base64, ...(fields && { providerFields: fields }) } };
  }

  #finish({ finishReason, usage, providerMetadata }: LanguageModelV4StreamPart & { type: 'finish' }): ModelChunk {
    if (finishReason.unified === 'error') {
      throw new ModelError('broken_stream', `the model ended its answer with ${finishReason.raw ?? 'an error'}`);
    }
    const metadata = providerMetadata?.[this.#dialect.key];
    const refusal = metadata && this.#dialect.refusalIn?.(metadata);
    const isPaused = this.#paused?.isPaused;
    const reason = isPaused ? undefined : FINISH_REASONS[finishReason.unified];
    const counted = usageOf(usage, this.#dialect.mediaIn?.(usage.raw));
    const total = counted && addUsage(this.#usageBefore, counted);
    if (isPaused && total) this.#usageBefore = total;
    return {
      ...(refusal && { refusal }),
      ...(total && { usage: total }),
      ...(reason && { finishReason: reason }),
    };
  }
}

/** An interrupted message has no finish reason: it is requested again. */
const FINISH_REASONS: Record<Exclude<LanguageModelV4FinishReason['unified'], 'error'>, FinishReason | undefined> = {
  stop: 'stop',
  length: 'length',
  'content-filter': 'content_filter',
  'tool-calls': 'tool_calls',
  interrupted: undefined,
  other: 'stop',
};

function usageOf({ inputTokens, outputTokens }: LanguageModelV4Usage, media?: MediaTokens): Usage | undefined {
  if (inputTokens.total === undefined && outputTokens.total === undefined) return undefined;
  return {
    inputTokens: inputTokens.total ?? 0,
    outputTokens: outputTokens.total ?? 0,
    cacheReadTokens: inputTokens.cacheRead ?? 0,
    cacheWriteTokens: inputTokens.cacheWrite ?? 0,
    reasoningTokens: outputTokens.reasoning ?? 0,
    ...mediaUsage(media),
  };
}

const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const;

/** @throws ModelError if the provider has no such reasoning effort */
function effortOf({ params }: ModelRequest): (typeof EFFORTS)[number] | undefined {
  const { reasoning_effort: wanted } = params;
  if (!wanted) return undefined;
  const effort = EFFORTS.find((one) => one === wanted);
  if (effort) return effort;
  throw new ModelError('bad_request', `reasoning_effort is ${wanted}, but must be one of ${EFFORTS.join(', ')}`);
}

async function callOptions(request: ModelRequest, dialect: Dialect): Promise<LanguageModelV4CallOptions> {
  const { params, options = {}, tools, toolChoice, responseFormat, webSearch } = request;
  const { max_tokens: maxOutputTokens, temperature, top_p: topP, top_k: topK } = params;
  const { presence_penalty: presencePenalty, frequency_penalty: frequencyPenalty, seed } = options;
  const effort = effortOf(request);
  const search = webSearch && dialect.search?.tool(webSearch);
  return {
    prompt: await promptOf(request, dialect),
    ...(maxOutputTokens && { maxOutputTokens }),
    ...(typeof temperature === 'number' && { temperature }),
    ...(typeof topP === 'number' && { topP }),
    ...(typeof topK === 'number' && { topK }),
    ...(presencePenalty !== undefined && { presencePenalty }),
    ...(frequencyPenalty !== undefined && { frequencyPenalty }),
    ...(seed !== undefined && { seed }),
    ...(effort && { reasoning: effort }),
    ...((tools.length > 0 || search) && {
      tools: [
        ...tools.map(({ name, description, parameters }) => ({
          type: 'function' as const,
          name,
          description,
          inputSchema: portableSchema(parameters),
        })),
        ...(search ? [search] : []),
      ],
      ...(toolChoice && {
        toolChoice: typeof toolChoice === 'string' ? { type: toolChoice } : { type: 'tool', toolName: toolChoice.tool },
      }),
    }),
    ...responseFormatOf(responseFormat),
    providerOptions: { [dialect.key]: dialect.options(request) },
  };
}

function responseFormatOf(
  format: ModelRequest['responseFormat'],
): Pick<LanguageModelV4CallOptions, 'responseFormat'> | undefined {
  if (!format || format.type === 'text') return undefined;
  if (format.type === 'json_object') return { responseFormat: { type: 'json' } };
  const { name, description, schema } = format.json_schema;
  return {
    responseFormat: { type: 'json', name, ...(description && { description }), ...(schema && { schema }) },
  };
}

type FileContent = ModelRequest['fileContent'];
/** The system prompt and the last message end the parts of the request that are cached. */
async function promptOf(request: ModelRequest, dialect: Dialect): Promise<LanguageModelV4Prompt> {
  const { system, transcript, fileContent } = request;
  const messages: LanguageModelV4Message[] = system ? [{ role: 'system', content: system }] : [];
  for (const item of transcript) {
    if (item.role === 'user') {
      const content = await Promise.all(item.content.map((part) => contentPart(part, fileContent, dialect)));
      messages.push({ role: 'user', content });
    } else if (item.role === 'tool')
      messages.push({ role: 'tool', content: [await toolResult(item, fileContent, dialect)] });
    else {
      const message = await assistantMessage(item.message, dialect, request);
      // A message of blank text alone is empty.
      if (message.content.length > 0) messages.push(message);
    }
  }
  const cached = dialect.cached?.(request);
  const last = messages.length - 1;
  const marked = messages.map((message, index) =>
    cached && (message.role === 'system' || index === last)
      ? { ...message, providerOptions: { [dialect.key]: cached } }
      : message,
  );
  return dialect.conversation?.(marked) ?? marked;
}

async function contentPart(
  file: UserContentPart,
  fileContent: FileContent,
  { audioTypes }: Dialect,
): Promise<LanguageModelV4TextPart | LanguageModelV4FilePart> {
  if (file.type === 'text') return { type: 'text', text: file.text };
  const mediaType = isImage(file) ? file.mimeType : file.asAudio && audioTypes?.get(file.mimeType);
  if (!mediaType) return { type: 'text', text: describeFile(file) };
  const data = await fileContent(file);
  return { type: 'file', filename: file.name, mediaType, data: { type: 'data', data } };
}

async function toolResult(
  { toolCallId, name: toolName, content, files }: ToolItem,
  fileContent: FileContent,
  { callId = acceptedId }: Dialect,
): Promise<Extract<LanguageModelV4Message, { role: 'tool' }>['content'][number]> {
  const images = files.filter(isImage);
  const output: LanguageModelV4ToolResultOutput =
    images.length === 0
      ? { type: 'text', value: content }
      : {
          type: 'content',
          value: [
            { type: 'text', text: content },
            ...(await Promise.all(
              images.map(async (image) => ({
                type: 'file' as const,
                mediaType: image.mimeType,
                data: { type: 'data' as const, data: await fileContent(image) },
              })),
            )),
          ],
        };
  return { type: 'tool-result', toolCallId: callId(toolCallId), toolName: acceptedName(toolName), output };
}
