import { LRUCache } from 'lru-cache';
import OpenAI from 'openai';
import type {
  EasyInputMessage,
  Response as ModelResponse,
  ResponseCreateParamsStreaming,
  ResponseFormatTextConfig,
  ResponseInputContent,
  ResponseInputItem,
  ResponseOutputItem,
  ResponseStreamEvent,
} from 'openai/resources/responses/responses';
import { Stream } from 'openai/streaming';
import { z } from 'zod';
import { describeFile, isImage } from '../../core/files.ts';
import type { StoredFile, UserContentPart } from '../../core/records/input.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { ToolItem } from '../../core/transcript.ts';
import { acceptedName } from '../accepted.ts';
import { guardedResponse, type RequestGuard } from '../guarded-response.ts';
import { blockFields, partsOf } from '../message-blocks.ts';
import type { ModelError } from '../model-error.ts';
import { createOpenAIClient, openAIFailure, type OpenAIOptions } from './client.ts';
import { reportedFailure } from '../provider-failure.ts';
import { portableSchema } from '../portable-schema.ts';
import type { ModelChunk, ModelProvider, ModelRequest } from '../provider.ts';
import {
  citing,
  SEARCH_SOURCES,
  searchBegun,
  searchEnded,
  searching,
  searchItem,
  searchTool,
} from './responses-search.ts';

/**
 * Requested in addition to the texts. Nothing is stored, so without its encrypted content the reasoning of a step would
 * be lost to the next one. Models also reason if no effort is requested; models without reasoning reject the request.
 */
const ENCRYPTED_REASONING = 'reasoning.encrypted_content';

/** OpenAI's Responses. Nothing is stored at the provider: each request has the whole conversation. */
export function openAIResponsesProvider(options: OpenAIOptions): ModelProvider {
  const { client, find } = createOpenAIClient(options);
  /** Models that have rejected a request for encrypted reasoning. */
  const refusing = new LRUCache<string, true>({ max: 1_000 });

  const send = async (body: ResponseCreateParamsStreaming, signal: AbortSignal): Promise<Response> => {
    const { model = '' } = body;
    const sendNow = (one: ResponseCreateParamsStreaming) => client.responses.create(one, { signal }).asResponse();
    if (refusing.has(model)) return sendNow(withoutReasoning(body));
    try {
      return await sendNow(body);
    } catch (error) {
      if (!(error instanceof OpenAI.BadRequestError && isOfInclude(error))) throw error;
      refusing.set(model, true);
      return sendNow(withoutReasoning(body));
    }
  };

  async function* read(
    body: ResponseCreateParamsStreaming,
    { controller, watch }: RequestGuard,
  ): AsyncGenerator<ModelChunk> {
    const response = await send(body, controller.signal);
    const events = Stream.fromSSEResponse<ResponseStreamEvent>(watch(response), controller, client);
    const items = new OutputItems();
    for await (const event of events) {
      const chunk = items.chunk(event);
      if (chunk) yield chunk;
    }
  }

  return {
    find,
    async *stream(request, signal) {
      const body = await bodyOf(request);
      yield* guardedResponse({ signal, silence: options, stalls: request.stalls, failureOf: openAIFailure }, (guard) =>
        read(body, guard),
      );
    },
  };
}

/** OpenAI's text is "Encrypted content is not supported with this model." */
function isOfInclude({ param, message }: InstanceType<typeof OpenAI.BadRequestError>): boolean {
  return param === 'include' || /encrypted[ _]content is not supported/i.test(message);
}

function withoutReasoning({ include, ...body }: ResponseCreateParamsStreaming): ResponseCreateParamsStreaming {
  return { ...body, include: (include ?? []).filter((one) => one !== ENCRYPTED_REASONING) };
}

/** Converts the events of a stream to chunks. */
class OutputItems {
  /** By the item's index in the output: the call's index in the message. */
  readonly #calls = new Map<number, number>();
  /** By the item's index in the output: the length of its text or summary so far. */
  readonly #lengths = new Map<number, number>();

  chunk(event: ResponseStreamEvent): ModelChunk | undefined {
    switch (event.type) {
      case 'response.output_text.delta':
        this.#grow(event.output_index, event.delta);
        return { content: event.delta };
      case 'response.output_text.annotation.added':
        return citing(event.annotation);
      case 'response.refusal.delta':
        return { refusal: event.delta };
      case 'response.reasoning_text.delta':
      case 'response.reasoning_summary_text.delta':
        this.#grow(event.output_index, event.delta);
        return { reasoning: event.delta };
      case 'response.output_item.added':
        return this.#begin(event.output_index, event.item);
      case 'response.function_call_arguments.delta': {
        const index = this.#calls.get(event.output_index);
        return index === undefined ? undefined : { toolCalls: [{ index, arguments: event.delta }] };
      }
      case 'response.output_item.done':
        return this.#end(event.output_index, event.item);
      case 'response.web_search_call.searching':
        return searching(event.item_id, 'searching');
      case 'response.completed':
      case 'response.incomplete':
        return endOf(event.response);
      case 'response.failed':
        throw failed(event.response);
      default:
        return undefined;
    }
  }

  #begin(at: number, item: ResponseOutputItem): ModelChunk | undefined {
    if (item.type === 'message') return { begins: 'text' };
    if (item.type === 'reasoning') return { begins: 'reasoning' };
    if (item.type === 'web_search_call') return searchBegun(item);
    if (item.type !== 'function_call') return undefined;
    const index = this.#calls.size;
    this.#calls.set(at, index);
    return {
      toolCalls: [{ index, id: item.call_id, name: item.name }],
      providerFields: blockFields({ type: 'call' }),
    };
  }

  #end(at: number, item: ResponseOutputItem): ModelChunk | undefined {
    const length = this.#lengths.get(at) ?? 0;
    if (item.type === 'reasoning') {
      const fields = { id: item.id, encrypted_content: item.encrypted_content };
      return { providerFields: blockFields({ type: 'reasoning', length, fields }) };
    }
    if (item.type === 'web_search_call') return searchEnded(item);
    if (item.type !== 'message') return undefined;
    return { providerFields: blockFields({ type: 'text', length, fields: { phase: item.phase } }) };
  }

  #grow(at: number, delta: string): void {
    this.#lengths.set(at, (this.#lengths.get(at) ?? 0) + delta.length);
  }
}

function endOf({ status, incomplete_details: details, usage }: ModelResponse): ModelChunk {
  const reason = details?.reason === 'content_filter' ? 'content_filter' : 'length';
  return {
    finishReason: status === 'incomplete' ? reason : 'stop',
    ...(usage && {
      usage: {
        inputTokens: usage.input_tokens,
        outputTokens: usage.output_tokens,
        cacheReadTokens: usage.input_tokens_details?.cached_tokens ?? 0,
        cacheWriteTokens: usage.input_tokens_details?.cache_write_tokens ?? 0,
        reasoningTokens: usage.output_tokens_details?.reasoning_tokens ?? 0,
      },
    }),
  };
}

function failed({ error }: ModelResponse): ModelError {
  const message = error?.message ?? 'the model failed without a reason';
  // Such an error has no type. Codes that are not known name what is wrong with the request, as `invalid_image_format`.
  return reportedFailure({ message, error: error && { ...error, type: 'invalid_request_error' } });
}

async function bodyOf(request: ModelRequest): Promise<ResponseCreateParamsStreaming> {
  const { model, system, toolChoice, params, options, webSearch } = request;
  const { max_tokens: maxTokens, temperature, top_p: topP, reasoning_effort: effort } = params;
  const tools = [
    ...request.tools.map(({ name, description, parameters }) => ({
      type: 'function',
      name,
      description,
      parameters: portableSchema(parameters),
      strict: false,
    })),
    ...(webSearch ? [searchTool(webSearch)] : []),
  ];
  const include = [ENCRYPTED_REASONING, ...(webSearch ? [SEARCH_SOURCES] : [])];
  const body = {
    model,
    input: (await Promise.all(request.transcript.map((item) => inputItems(item, request.fileContent)))).flat(),
    stream: true as const,
    store: false,
    ...(system && { instructions: system }),
    ...(maxTokens && { max_output_tokens: maxTokens }),
    ...(typeof temperature === 'number' && { temperature }),
    ...(typeof topP === 'number' && { top_p: topP }),
    ...(options?.metadata && { metadata: options.metadata }),
    ...(effort && { reasoning: { effort, summary: 'auto' } }),
    include,
    // The search is the only tool of OpenAI itself.
    ...(webSearch?.max_uses && { max_tool_calls: webSearch.max_uses }),
    ...(tools.length > 0 && {
      tools,
      // Rejected without tools.
      ...(typeof params.parallel_tool_calls === 'boolean' && { parallel_tool_calls: params.parallel_tool_calls }),
      ...(toolChoice && {
        tool_choice: typeof toolChoice === 'string' ? toolChoice : { type: 'function', name: toolChoice.tool },
      }),
    }),
    ...textFormatOf(request.responseFormat),
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the efforts that exist differ from model to model
  return body as unknown as ResponseCreateParamsStreaming;
}

function textFormatOf(format: ModelRequest['responseFormat']): { text?: { format: ResponseFormatTextConfig } } {
  if (!format || format.type === 'text') return {};
  if (format.type === 'json_object') return { text: { format } };
  const { name, description, schema, strict } = format.json_schema;
  return {
    text: {
      format: {
        type: 'json_schema',
        name,
        schema: schema ?? {},
        ...(description && { description }),
        ...(typeof strict === 'boolean' && { strict }),
      },
    },
  };
}

type FileContent = ModelRequest['fileContent'];

async function inputItems(
  item: ModelRequest['transcript'][number],
  fileContent: FileContent,
): Promise<ResponseInputItem[]> {
  if (item.role === 'assistant') return assistantItems(item.message);
  if (item.role === 'tool') return [await toolOutput(item, fileContent)];
  const message: EasyInputMessage = {
    role: 'user',
    content: await Promise.all(item.content.map((part) => contentPart(part, fileContent))),
  };
  return [message];
}

const reasoningFields = z.object({ id: z.string(), encrypted_content: z.string() });
const textFields = z.object({ phase: z.enum(['commentary', 'final_answer']) });

function assistantItems(message: ModelMessage): ResponseInputItem[] {
  return partsOf(message).flatMap((part): ResponseInputItem[] => {
    switch (part.type) {
      case 'call': {
        const { id, name, arguments: args } = part.call;
        return [{ type: 'function_call', call_id: id, name: acceptedName(name), arguments: args || '{}' }];
      }
      case 'hosted':
        return searchItem(part.hosted);
      case 'text': {
        const phase = textFields.safeParse(part.fields).data;
        return part.text ? [{ role: 'assistant', content: part.text, ...phase }] : [];
      }
      case 'reasoning': {
        const fields = reasoningFields.safeParse(part.fields).data;
        const summary = part.text ? [{ type: 'summary_text' as const, text: part.text }] : [];
        return fields ? [{ type: 'reasoning', summary, ...fields }] : [];
      }
    }
  });
}

async function toolOutput(
  { toolCallId, content, files }: ToolItem,
  fileContent: FileContent,
): Promise<ResponseInputItem> {
  const images = files.filter(isImage);
  if (images.length === 0) return { type: 'function_call_output', call_id: toolCallId, output: content };
  const parts = await Promise.all(images.map((image) => contentPart(image, fileContent)));
  return {
    type: 'function_call_output',
    call_id: toolCallId,
    output: [{ type: 'input_text', text: content }, ...parts],
  };
}

async function contentPart(
  part: UserContentPart | StoredFile,
  fileContent: FileContent,
): Promise<ResponseInputContent> {
  if (part.type === 'text') return { type: 'input_text', text: part.text };
  if (!isImage(part)) return { type: 'input_text', text: describeFile(part) };
  const data = `data:${part.mimeType};base64,${await fileContent(part)}`;
  return { type: 'input_image', image_url: data, detail: 'auto' };
}
