import OpenAI from 'openai';
import type {
  ChatCompletionChunk,
  ChatCompletionContentPart,
  ChatCompletionCreateParamsStreaming,
  ChatCompletionMessageParam,
} from 'openai/resources/chat/completions';
import { Stream } from 'openai/streaming';
import type { FinishReason, ModelMessage, StoredFile, Usage, UserContentPart } from '../core/records.ts';
import { onAbort } from '../lib/abort.ts';
import { AnswerTooLargeError } from '../lib/answer-bounds.ts';
import { createAgent, createFetch } from '../lib/guarded-fetch.ts';
import { traceHeaders } from '../telemetry/trace-propagation.ts';
import { IdleTimer } from '../lib/timeout.ts';
import { ModelError, type ModelFailure } from './model-error.ts';
import type { ModelChunk, ModelProvider, ModelRequest, OfferedTool } from './provider.ts';

interface OpenAIOptions {
  apiKey: string;
  /** URL of a server with the same protocol; undefined for OpenAI. */
  baseUrl: string | undefined;
  idleSeconds: number;
}

const MAX_ANSWER_MS = 24 * 3_600_000;

/**
 * A stream of 64 MiB has 250,000 tokens of about 260 bytes each, twice what models write. A single event, or an answer
 * that is not a stream, is parsed as a whole, so its limit is lower.
 */
const BOUNDS = { maxBytes: 4 * 1024 * 1024, maxStreamBytes: 64 * 1024 * 1024 };

/** Characters in the texts, names and arguments of a message: many times what models write, and all that streams live. */
const MAX_TEXT_LENGTH = 4 * 1024 * 1024;

/** Usage follows the finish reason immediately; some servers then keep the connection open. */
const AFTER_FINISH_MS = 1_000;

/** Time-out for looking up whether the provider has a model. */
const LOOKUP_TIMEOUT_MS = 3_000;

/** Chat completions, as OpenAI and many others offer them. */
export class OpenAIProvider implements ModelProvider {
  readonly #client: OpenAI;
  readonly #isOpenAI: boolean;
  readonly #idleMs: number;

  constructor({ apiKey, baseUrl, idleSeconds }: OpenAIOptions) {
    const modelFetch = createFetch(createAgent({ connectTimeoutMs: idleSeconds * 1000 }), BOUNDS);
    // The client's own retries would multiply the activity's, and hide failures from the turn's log.
    this.#client = new OpenAI({
      apiKey,
      baseURL: baseUrl ?? null,
      maxRetries: 0,
      // The maximum duration of an answer. A silent answer is ended much earlier, by the idle timer.
      timeout: MAX_ANSWER_MS,
      logLevel: 'off',
      fetch: (url, init) => modelFetch(url instanceof Request ? url.url : url, withTrace(init)),
    });
    this.#isOpenAI = baseUrl === undefined;
    this.#idleMs = idleSeconds * 1000;
  }

  async *stream(request: ModelRequest, signal: AbortSignal): AsyncGenerator<ModelChunk> {
    const body = await this.#body(request);
    const idle = new IdleTimer(this.#idleMs);
    const controller = new AbortController();
    // Without a reason: the client recognizes an aborted stream by the AbortError that results.
    const stop = (): void => controller.abort();
    const stopListening = onAbort(signal, stop);
    onAbort(idle.signal, stop);
    let finishing: NodeJS.Timeout | undefined;
    let rest: BodyReader | undefined;
    let length = 0;
    try {
      const response = await this.#client.chat.completions.create(body, { signal: controller.signal }).asResponse();
      const watched = watchedResponse(response, {
        onRead: () => idle.reset(),
        // The client does not read on after `[DONE]`.
        onCancel: (reader) => (finishing ? void (rest = reader) : reader.cancel()),
      });
      const chunks = Stream.fromSSEResponse<ChatCompletionChunk>(watched, controller, this.#client);
      for await (const chunk of chunks) {
        const part = chunkOf(chunk);
        length += lengthOf(part);
        if (length > MAX_TEXT_LENGTH) throw tooLongError(`is longer than ${MAX_TEXT_LENGTH} characters`);
        if (part.finishReason !== undefined) finishing ??= setTimeout(stop, AFTER_FINISH_MS);
        yield part;
      }
    } catch (error) {
      if (!idle.signal.aborted) throw failureOf(error);
    } finally {
      idle.stop();
      stopListening();
      const close = (): void => {
        clearTimeout(finishing);
        controller.abort();
      };
      // Only a connection whose response was read to its end serves the next call. `finishing` limits the time.
      if (rest) void readToEnd(rest).then(close);
      else close();
    }
    // Some servers keep the connection open after a complete answer.
    if (finishing || signal.aborted) return;
    if (idle.signal.aborted)
      throw new ModelError('stalled', `the model sent nothing for ${this.#idleMs / 1000} seconds`);
    throw new ModelError('broken_stream', 'the model ended its answer in the middle');
  }

  async has(model: string): Promise<boolean> {
    const options = { timeout: LOOKUP_TIMEOUT_MS };
    try {
      const list = await this.#client.models.list(options);
      if (list.data.some(({ id }) => id === model)) return true;
      await this.#client.models.retrieve(model, options);
      return true;
    } catch (error) {
      // Only a server that lists models and reports this one as not found certainly does not have it.
      return !(error instanceof OpenAI.NotFoundError && error.code === 'model_not_found');
    }
  }

  async #body(request: ModelRequest): Promise<ChatCompletionCreateParamsStreaming> {
    const { model, system, tools } = request;
    const { max_tokens: maxTokens, ...params } = request.params;
    const body = {
      model,
      messages: [...(system ? [{ role: 'system', content: system }] : []), ...(await messagesOf(request))],
      stream: true,
      stream_options: { include_usage: true },
      ...withoutNulls(params),
      // OpenAI renamed the parameter and rejects the old name for newer models; other servers only know the old name.
      ...(maxTokens && { [this.#isOpenAI ? 'max_completion_tokens' : 'max_tokens']: maxTokens }),
      ...(tools.length > 0 && { tools: tools.map(functionOf) }),
      ...responseFormatOf(request.responseFormat),
    };
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- passes on all parameters of the agent, also those that the client's types lack (top_k)
    return body as unknown as ChatCompletionCreateParamsStreaming;
  }
}

/** Only the fields of a tool that the protocol defines: some providers reject others, and none needs them. */
function functionOf({ name, description, parameters }: OfferedTool): object {
  return { type: 'function', function: { name, description, parameters } };
}

/** Adds the headers of the current trace context. */
function withTrace(init: RequestInit = {}): RequestInit {
  const headers = new Headers(init.headers);
  for (const [name, value] of Object.entries(traceHeaders())) headers.set(name, value);
  return { ...init, headers };
}

type BodyReader = ReadableStreamDefaultReader<Uint8Array>;

/** A copy of the response. `onRead` is called for every chunk of the body, `onCancel` if the body is not read to its end. */
function watchedResponse(
  response: Response,
  { onRead, onCancel }: { onRead: () => void; onCancel: (reader: BodyReader) => void | Promise<void> },
): Response {
  onRead();
  const reader = response.body?.getReader();
  if (!reader) return response;
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await reader.read();
        onRead();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => onCancel(reader),
    },
    { highWaterMark: 0 },
  );
  return new Response(body, response);
}

/** Never throws: what is left is not used. */
async function readToEnd(reader: BodyReader): Promise<void> {
  try {
    while (!(await reader.read()).done);
  } catch {
    // The connection is closed.
  }
}

/** Converts an error of the client to a ModelError with the provider's message; other errors are returned unchanged. */
export function failureOf(error: unknown): unknown {
  const overflow = overflowIn(error);
  if (overflow) return tooLongError(`was not read: ${overflow.message}`);
  if (error instanceof OpenAI.APIUserAbortError || (error instanceof Error && error.name === 'AbortError'))
    return error;
  if (error instanceof OpenAI.APIConnectionTimeoutError)
    return new ModelError('timeout', error.message, { cause: error });
  if (error instanceof OpenAI.APIConnectionError) {
    const reason = error.cause instanceof Error ? ` (${rootMessage(error.cause)})` : '';
    return new ModelError('connection', `the model cannot be reached${reason}`, { cause: error });
  }
  if (error instanceof OpenAI.APIError) {
    return new ModelError(failureOfStatus(error), error.message, {
      cause: error,
      retryAfterMs: retryAfter(error.headers),
    });
  }
  if (error instanceof SyntaxError || error instanceof TypeError) {
    // JSON cut off in the middle, or a connection that broke while the body was read.
    return new ModelError('broken_stream', `the model's answer broke off: ${rootMessage(error)}`, { cause: error });
  }
  return error;
}

/** Not retryable: the same request would get the same answer. */
function tooLongError(reason: string): ModelError {
  return new ModelError('bad_request', `the model's answer ${reason}`);
}

function overflowIn(error: unknown): AnswerTooLargeError | undefined {
  if (error instanceof AnswerTooLargeError) return error;
  return error instanceof Error ? overflowIn(error.cause) : undefined;
}

function lengthOf({ content = '', refusal = '', reasoning = '', toolCalls = [], providerFields }: ModelChunk): number {
  const calls = toolCalls.map(
    (call) => (call.id ?? '') + (call.name ?? '') + (call.arguments ?? '') + json(call.providerFields),
  );
  return [content, refusal, reasoning, json(providerFields), ...calls].reduce((sum, text) => sum + text.length, 0);
}

function json(fields: object | undefined): string {
  return fields ? JSON.stringify(fields) : '';
}

function failureOfStatus({ status, code, type }: InstanceType<typeof OpenAI.APIError>): ModelFailure {
  // An error without a status was sent inside a stream, after a successful start.
  if (status === undefined) return type === 'invalid_request_error' ? 'bad_request' : 'overloaded';
  // OpenAI's 429 for an account without credit is not retryable.
  if (status === 429) return code === 'insufficient_quota' ? 'auth' : 'rate_limited';
  if (status === 408 || status === 504) return 'timeout';
  if (status === 401 || status === 403) return 'auth';
  if (status === 404) return 'refused_model';
  if (status === 409 || status >= 500) return 'overloaded';
  return 'bad_request';
}

/** Reads `Retry-After` (seconds or a date), or `retry-after-ms`, which some servers send. */
function retryAfter(headers: Headers | undefined): number | undefined {
  const inMs = Number(headers?.get('retry-after-ms') ?? Number.NaN);
  if (inMs >= 0) return inMs;
  const value = headers?.get('retry-after');
  if (!value) return undefined;
  const ms = /^\s*\d+(\.\d+)?\s*$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return ms >= 0 ? ms : undefined;
}

function rootMessage(error: Error): string {
  return error.cause instanceof Error ? rootMessage(error.cause) : error.message;
}

function chunkOf({ choices, usage }: ChatCompletionChunk): ModelChunk {
  const [choice] = choices ?? [];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- servers add fields of their own to deltas
  const delta = (choice?.delta ?? {}) as ChatCompletionChunk.Choice.Delta & Record<string, unknown>;
  const reasoning = delta['reasoning_content'] ?? delta['reasoning'];
  return {
    ...(delta.content && { content: delta.content }),
    ...(delta.refusal && { refusal: delta.refusal }),
    ...(typeof reasoning === 'string' && reasoning && { reasoning }),
    ...(delta.tool_calls && { toolCalls: delta.tool_calls.map(toolCallChunkOf) }),
    ...returnedFields(delta),
    ...(choice?.finish_reason && { finishReason: FINISH_REASONS[choice.finish_reason] ?? 'stop' }),
    ...(usage && { usage: usageOf(usage) }),
  };
}

const FINISH_REASONS: Record<string, FinishReason> = {
  stop: 'stop',
  length: 'length',
  tool_calls: 'tool_calls',
  function_call: 'tool_calls',
  content_filter: 'content_filter',
};

/**
 * Fields that providers expect back with the message or call they belong to, such as reasoning signatures. Other unknown
 * fields are dropped, because strict servers reject a request that has one.
 */
const RETURNED_FIELDS = new Set(['reasoning_details', 'thinking_blocks', 'extra_content', 'provider_specific_fields']);

function toolCallChunkOf(
  call: ChatCompletionChunk.Choice.Delta.ToolCall,
): NonNullable<ModelChunk['toolCalls']>[number] {
  return {
    index: call.index,
    ...(call.id && { id: call.id }),
    ...(call.function?.name && { name: call.function.name }),
    ...(call.function?.arguments && { arguments: call.function.arguments }),
    ...returnedFields(call),
  };
}

function returnedFields(value: object): { providerFields?: Record<string, unknown> } {
  const fields = Object.entries(value).filter(([name, field]) => RETURNED_FIELDS.has(name) && field !== null);
  return fields.length > 0 ? { providerFields: Object.fromEntries(fields) } : {};
}

function usageOf(usage: OpenAI.CompletionUsage): Usage {
  return {
    inputTokens: usage.prompt_tokens ?? 0,
    outputTokens: usage.completion_tokens ?? 0,
    cacheReadTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
    cacheWriteTokens: 0,
    reasoningTokens: usage.completion_tokens_details?.reasoning_tokens ?? 0,
  };
}

type FileContent = ModelRequest['fileContent'];

async function messagesOf({ transcript, fileContent }: ModelRequest): Promise<ChatCompletionMessageParam[]> {
  const messages: ChatCompletionMessageParam[] = [];
  // A tool message can only contain text, so the files follow as a user message after all results of the same message.
  let files: StoredFile[] = [];
  const flush = async () => {
    if (files.length === 0) return;
    const parts = await Promise.all(files.map((file) => filePart(file, fileContent)));
    messages.push({ role: 'user', content: [{ type: 'text', text: 'Files that the tools returned:' }, ...parts] });
    files = [];
  };
  for (const item of transcript) {
    if (item.role === 'tool') {
      messages.push({ role: 'tool', tool_call_id: item.toolCallId, content: item.content });
      files.push(...item.files.filter(({ mimeType }) => mimeType.startsWith('image/')));
      continue;
    }
    await flush();
    messages.push(item.role === 'user' ? await userMessage(item.content, fileContent) : assistantMessage(item.message));
  }
  await flush();
  // A turn without input continues the conversation; many models reject one that ends with a message of their own.
  if (messages.at(-1)?.role !== 'user' && messages.at(-1)?.role !== 'tool') messages.push(CONTINUE);
  return messages;
}

const CONTINUE: ChatCompletionMessageParam = { role: 'user', content: 'Continue.' };

async function userMessage(parts: UserContentPart[], fileContent: FileContent): Promise<ChatCompletionMessageParam> {
  const [only, ...more] = parts;
  if (only?.type === 'text' && more.length === 0) return { role: 'user', content: only.text };
  // Some providers reject empty parts.
  const content = parts
    .filter((part) => part.type === 'file' || part.text !== '')
    .map(async (part) =>
      part.type === 'text' ? { type: 'text' as const, text: part.text } : filePart(part, fileContent),
    );
  return { role: 'user', content: await Promise.all(content) };
}

function assistantMessage({ content, refusal, toolCalls, providerFields }: ModelMessage): ChatCompletionMessageParam {
  const calls = toolCalls.map(({ id, name, arguments: args, route, providerFields: fields }) => {
    // Servers reject what is not a JSON object, even from their own model; the result describes the error.
    const isUsable = args.trim() !== '' && (route.to !== 'answered' || isJsonObject(args));
    return {
      id,
      type: 'function' as const,
      function: { name: acceptedName(name), arguments: isUsable ? args : '{}' },
      ...fields,
    };
  });
  return {
    role: 'assistant',
    content: content || null,
    ...(refusal && { refusal }),
    ...(calls.length > 0 && { tool_calls: calls }),
    ...providerFields,
  };
}

/** Models invent names that providers reject, also in the message of the model. The result has the original name. */
function acceptedName(name: string): string {
  return name.replaceAll(/[^a-zA-Z0-9_-]/g, '_').slice(0, MAX_NAME_LENGTH);
}

const MAX_NAME_LENGTH = 64;

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

async function filePart(file: StoredFile, fileContent: FileContent): Promise<ChatCompletionContentPart> {
  const base64 = await fileContent(file);
  const data = `data:${file.mimeType};base64,${base64}`;
  if (file.mimeType.startsWith('image/')) return { type: 'image_url', image_url: { url: data } };
  if (file.mimeType.startsWith('text/')) {
    return { type: 'text', text: `File ${file.name}:\n${Buffer.from(base64, 'base64').toString()}` };
  }
  return { type: 'file', file: { filename: file.name, file_data: data } };
}

function responseFormatOf(format: ModelRequest['responseFormat']): { response_format?: unknown } {
  if (!format || format.type === 'text') return {};
  if (format.type === 'json_object') return { response_format: format };
  return { response_format: { type: format.type, json_schema: withoutNulls(format.json_schema) } };
}

function withoutNulls(value: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== null && field !== undefined));
}
