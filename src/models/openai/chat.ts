import type OpenAI from 'openai';
import type {
  ChatCompletionChunk,
  ChatCompletionContentPart,
  ChatCompletionCreateParamsStreaming,
  ChatCompletionMessageParam,
} from 'openai/resources/chat/completions';
import { Stream } from 'openai/streaming';
import { z } from 'zod';
import { describeFile, isImage } from '../../core/files.ts';
import type { StoredFile, UserContentPart } from '../../core/records/input.ts';
import type { FinishReason, ModelMessage } from '../../core/records/message.ts';
import { mediaUsage, type Usage } from '../../core/records/usage.ts';
import { isJsonObject, parsedJson } from '../../lib/json.ts';
import { acceptedName } from '../accepted.ts';
import { AUDIO_INPUT } from '../audio-input.ts';
import { guardedResponse, type RequestGuard } from '../guarded-response.ts';
import { ModelError } from '../model-error.ts';
import { createOpenAIClient, openAIFailure, isAzure, isOpenAI, type OpenAIOptions } from './client.ts';
import { reportedFailure } from '../provider-failure.ts';
import type { ProviderConfig } from '../provider-file.ts';
import { portableSchema } from '../portable-schema.ts';
import type { ModelChunk, ModelProvider, ModelRequest, OfferedTool } from '../provider.ts';

/** Chat completions, as OpenAI and many others offer them. */
export function openAIProvider(options: OpenAIOptions & Pick<ProviderConfig, 'maxTokensParameter'>): ModelProvider {
  const { client, find } = createOpenAIClient(options);
  const { baseUrl } = options;
  // OpenAI renamed the parameter and rejects the old name for newer models; other servers only accept the old name.
  const isNew = baseUrl === undefined || isOpenAI(baseUrl) || isAzure(baseUrl);
  const { maxTokensParameter = isNew ? 'max_completion_tokens' : 'max_tokens' } = options;
  return {
    find,
    async *stream(request, signal) {
      const body = await bodyOf(request, maxTokensParameter);
      yield* guardedResponse({ signal, silence: options, stalls: request.stalls, failureOf: openAIFailure }, (guard) =>
        readResponse(client, body, guard),
      );
    },
  };
}

async function* readResponse(
  client: OpenAI,
  body: ChatCompletionCreateParamsStreaming,
  { controller, watch }: RequestGuard,
): AsyncGenerator<ModelChunk> {
  const response = await client.chat.completions.create(body, { signal: controller.signal }).asResponse();
  const end = new EndMarker();
  const chunks = Stream.fromSSEResponse<ChatCompletionChunk>(
    watch(response, (bytes) => end.add(bytes)),
    controller,
    client,
  );
  let finishReason: FinishReason | undefined;
  let hasCalls = false;
  for await (const chunk of chunks) {
    const part = chunkOf(chunk);
    finishReason ??= part.finishReason;
    hasCalls ||= part.toolCalls !== undefined;
    yield part;
  }
  // Lenient servers send no reason: only the marker distinguishes their messages from those that were cut off.
  if (finishReason === undefined && end.wasReached) yield { finishReason: hasCalls ? 'tool_calls' : 'stop' };
}

async function bodyOf(request: ModelRequest, maxTokensParameter: string): Promise<ChatCompletionCreateParamsStreaming> {
  const { model, system, tools, toolChoice } = request;
  const { reasoning_tokens: _, audio, ...options } = request.options ?? {};
  const { max_tokens: maxTokens, parallel_tool_calls: parallel, ...params } = request.params;
  const body = {
    model,
    messages: [...(system ? [{ role: 'system', content: system }] : []), ...(await messagesOf(request))],
    stream: true,
    stream_options: { include_usage: true },
    ...withoutNulls(params),
    ...options,
    // OpenAI's name for samples without a header.
    ...(audio && { audio: { ...audio, format: audio.format === 'linear16' ? 'pcm16' : audio.format } }),
    ...(maxTokens && { [maxTokensParameter]: maxTokens }),
    ...(tools.length > 0 && {
      tools: tools.map(functionOf),
      // Rejected without tools.
      ...(typeof parallel === 'boolean' && { parallel_tool_calls: parallel }),
      ...(toolChoice && {
        tool_choice:
          typeof toolChoice === 'string' ? toolChoice : { type: 'function', function: { name: toolChoice.tool } },
      }),
    }),
    ...responseFormatOf(request.responseFormat),
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- passes on all parameters of the agent, also those that the client's types lack (top_k)
  return body as unknown as ChatCompletionCreateParamsStreaming;
}

/** Only the fields of a tool that the protocol defines: some providers reject others, and none needs them. */
function functionOf({ name, description, parameters }: OfferedTool): object {
  return { type: 'function', function: { name, description, parameters: portableSchema(parameters) } };
}

/** vLLM's form of an error inside a stream. OpenAI's client only detects an error in a field `error`. */
const flatError = z.looseObject({ object: z.literal('error'), message: z.string() });

/** The finish reasons of incomplete messages: of OpenRouter and Mistral, and of DeepSeek. */
const FAILURES: ReadonlySet<string> = new Set(['error', 'insufficient_system_resource']);

/** @throws ModelError if the chunk reports that the response has failed */
function chunkOf(chunk: ChatCompletionChunk): ModelChunk {
  // Kimi has the usage in the choice.
  const [choice]: (ChatCompletionChunk.Choice & { usage?: OpenAI.CompletionUsage })[] = chunk.choices ?? [];
  const reason: string | null | undefined = choice?.finish_reason;
  const error = choice ? undefined : flatError.safeParse(chunk).data;
  if (error) throw reportedFailure({ message: error.message, error });
  if (reason && FAILURES.has(reason)) throw new ModelError('overloaded', `the model ended its answer with ${reason}`);
  const usage = chunk.usage ?? choice?.usage;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- servers add fields of their own to deltas
  const delta = (choice?.delta ?? {}) as ChatCompletionChunk.Choice.Delta & Record<string, unknown>;
  return {
    ...textsOf(delta),
    ...(delta.refusal && { refusal: delta.refusal }),
    ...audioOf(delta['audio']),
    ...(delta.tool_calls && { toolCalls: delta.tool_calls.map(toolCallChunkOf) }),
    ...(reason && { finishReason: FINISH_REASONS[reason] ?? 'stop' }),
    ...(usage && { usage: usageOf(usage) }),
  };
}

/**
 * The fields in which servers send what a model thinks: DeepSeek, Kimi, llama.cpp and SGLang the first, vLLM, Ollama and
 * OpenRouter the second. Mistral has thoughts among the parts of `content`.
 */
const REASONING_FIELDS = ['reasoning_content', 'reasoning'] as const;

/**
 * The field in which the reasoning of a message came, in its provider fields. It goes back in that field, and so only to
 * a server that sends it: DeepSeek and Kimi reject calls without the thoughts that led to them, OpenAI rejects the fields.
 */
const reasoningField = z.object({ reasoning_field: z.enum([...REASONING_FIELDS, 'content']) });

type ReasoningField = z.infer<typeof reasoningField>['reasoning_field'];

/** Mistral: https://docs.mistral.ai/capabilities/reasoning */
const contentParts = z.array(
  z.union([
    z.object({ type: z.literal('text'), text: z.string() }),
    z.object({ type: z.literal('thinking'), thinking: z.array(z.object({ text: z.string().default('') })) }),
    // References to the results of tools, and what is added later.
    z.object({ type: z.string().refine((type) => type !== 'text' && type !== 'thinking') }),
  ]),
);

function textsOf(delta: Record<string, unknown>): Pick<ModelChunk, 'content' | 'reasoning' | 'providerFields'> {
  const { content } = delta;
  const parts = Array.isArray(content) ? contentParts.safeParse(content) : undefined;
  if (parts?.error || (content && !parts && typeof content !== 'string'))
    throw new ModelError(
      'broken_stream',
      'the model sent content that is neither a text nor parts of text and thinking',
    );
  const thoughts = (parts?.data ?? []).flatMap((part) => ('thinking' in part ? part.thinking : []));
  const texts = (parts?.data ?? []).flatMap((part) => ('text' in part ? part.text : []));
  const text = typeof content === 'string' ? content : texts.join('');
  const named = REASONING_FIELDS.find((name) => typeof delta[name] === 'string' && delta[name]);
  const field: ReasoningField | undefined = thoughts.length > 0 ? 'content' : named;
  const reasoning = named ? String(delta[named]) : thoughts.map((thought) => thought.text).join('');
  const fields = { ...returnedFields(delta).providerFields, ...(field && { reasoning_field: field }) };
  return {
    ...(text && { content: text }),
    ...(reasoning && { reasoning }),
    ...(Object.keys(fields).length > 0 && { providerFields: fields }),
  };
}

const text = z.string().nullish();
const audioDelta = z.object({ id: text, data: text, transcript: text });

function audioOf(delta: unknown): Pick<ModelChunk, 'audio'> {
  const { id, data, transcript } = audioDelta.safeParse(delta).data ?? {};
  // The last delta has only the time until which the provider keeps it.
  if (!id && !data && !transcript) return {};
  return { audio: { ...(id && { id }), ...(data && { data }), ...(transcript && { transcript }) } };
}

const FINISH_REASONS: Record<string, FinishReason> = {
  stop: 'stop',
  length: 'length',
  // Mistral, at the end of the context.
  model_length: 'length',
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

/** Also applied to what is returned: a client that keeps a conversation may have changed it. */
function returnedFields(value: object = {}): { providerFields?: Record<string, unknown> } {
  const fields = Object.entries(value).filter(([name, field]) => RETURNED_FIELDS.has(name) && field !== null);
  return fields.length > 0 ? { providerFields: Object.fromEntries(fields) } : {};
}

/** Some servers count the tokens of images separately, too. */
type MediaTokens = { audio_tokens?: number | null; image_tokens?: number | null } | undefined;

function usageOf(usage: OpenAI.CompletionUsage): Usage {
  const { prompt_tokens_details: input, completion_tokens_details: output } = usage;
  const [inputMedia, outputMedia]: MediaTokens[] = [input, output];
  return {
    inputTokens: usage.prompt_tokens ?? 0,
    outputTokens: usage.completion_tokens ?? 0,
    cacheReadTokens: input?.cached_tokens ?? 0,
    cacheWriteTokens: 0,
    reasoningTokens: output?.reasoning_tokens ?? 0,
    ...mediaUsage({
      audioInput: inputMedia?.audio_tokens ?? 0,
      imageInput: inputMedia?.image_tokens ?? 0,
      audioOutput: outputMedia?.audio_tokens ?? 0,
      imageOutput: outputMedia?.image_tokens ?? 0,
    }),
  };
}

type FileContent = ModelRequest['fileContent'];

async function messagesOf({ transcript, fileContent }: ModelRequest): Promise<ChatCompletionMessageParam[]> {
  const messages: ChatCompletionMessageParam[] = [];
  // A tool message can only contain text, so the files follow as a user message after all results of the same message.
  let files: StoredFile[] = [];
  const flush = async () => {
    if (files.length === 0) return;
    const parts = await Promise.all(files.map((file) => contentPart(file, fileContent)));
    messages.push({ role: 'user', content: [{ type: 'text', text: 'Files that the tools returned:' }, ...parts] });
    files = [];
  };
  for (const item of transcript) {
    if (item.role === 'tool') {
      messages.push({ role: 'tool', tool_call_id: item.toolCallId, content: item.content });
      files.push(...item.files.filter(isImage));
      continue;
    }
    await flush();
    messages.push(item.role === 'user' ? await userMessage(item.content, fileContent) : assistantMessage(item.message));
  }
  await flush();
  return messages;
}

async function userMessage(parts: UserContentPart[], fileContent: FileContent): Promise<ChatCompletionMessageParam> {
  const [only, ...more] = parts;
  if (only?.type === 'text' && more.length === 0) return { role: 'user', content: only.text };
  return { role: 'user', content: await Promise.all(parts.map((part) => contentPart(part, fileContent))) };
}

/** The reasoning of an earlier message; none if it goes back in a structured form of the same server. */
function returnedReasoning({ content, reasoning, providerFields }: ModelMessage): Record<string, unknown> {
  const field = reasoningField.safeParse(providerFields).data?.reasoning_field;
  if (!field || !reasoning || providerFields?.['reasoning_details']) return {};
  if (field !== 'content') return { [field]: reasoning };
  const thinking = { type: 'thinking', thinking: [{ type: 'text', text: reasoning }] };
  return { content: [thinking, ...(content ? [{ type: 'text', text: content }] : [])] };
}

function assistantMessage(message: ModelMessage): ChatCompletionMessageParam {
  const { content, refusal, toolCalls, providerFields } = message;
  const calls = toolCalls.map(({ id, name, arguments: args, route, providerFields: fields }) => {
    // Servers reject what is not a JSON object, even from their own model; the result describes the error.
    const isUsable = args.trim() !== '' && (route.to !== 'answered' || isJsonObject(parsedJson(args)));
    return {
      id,
      type: 'function' as const,
      function: { name: acceptedName(name), arguments: isUsable ? args : '{}' },
      ...returnedFields(fields).providerFields,
    };
  });
  return {
    role: 'assistant',
    content: content || null,
    ...(refusal && { refusal }),
    ...(calls.length > 0 && { tool_calls: calls }),
    ...returnedFields(providerFields).providerFields,
    ...returnedReasoning(message),
  };
}

async function contentPart(file: UserContentPart, fileContent: FileContent): Promise<ChatCompletionContentPart> {
  if (file.type === 'text') return { type: 'text', text: file.text };
  const format = file.asAudio && AUDIO_INPUT['openai-chat'].get(file.mimeType);
  if (format) {
    const audio = { type: 'input_audio', input_audio: { data: await fileContent(file), format } };
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the formats are those of the table
    return audio as ChatCompletionContentPart;
  }
  if (!isImage(file)) return { type: 'text', text: describeFile(file) };
  return { type: 'image_url', image_url: { url: `data:${file.mimeType};base64,${await fileContent(file)}` } };
}

function responseFormatOf(format: ModelRequest['responseFormat']): { response_format?: unknown } {
  if (!format || format.type === 'text') return {};
  if (format.type === 'json_object') return { response_format: format };
  return { response_format: { type: format.type, json_schema: withoutNulls(format.json_schema) } };
}

function withoutNulls(value: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== null && field !== undefined));
}

/** As much of the end of a body as holds the marker with white space around it. */
const TAIL_BYTES = 64;

/** Detects whether a stream of events has reached its `[DONE]`, which OpenAI's client does not report. */
class EndMarker {
  #tail = '';

  get wasReached(): boolean {
    return /(?:^|[\r\n])data: ?\[DONE\]\s*$/.test(this.#tail);
  }

  /** Takes the next bytes of the body. */
  add(bytes: Uint8Array): void {
    this.#tail = (this.#tail + Buffer.from(bytes.subarray(-TAIL_BYTES)).toString('latin1')).slice(-TAIL_BYTES);
  }
}
