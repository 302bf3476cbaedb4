import type { LiveBus } from '../live/bus.ts';
import type { GivenMessage } from '../core/given-conversation.ts';
import { eventId } from '../core/ids.ts';
import {
  applyDelta,
  charactersOf,
  emptyText,
  splitDelta,
  textDeltas,
  type MessageDelta,
  type MessageText,
} from '../core/message.ts';
import type { StoredFile } from '../core/records/input.ts';
import type { NewRecord } from '../core/records/log.ts';
import type { FinishReason, MessagePlan, ModelMessage } from '../core/records/message.ts';
import { serversConnected, type McpInitialized } from '../core/records/servers.ts';
import type { TurnError, TurnErrorCode } from '../core/records/turn.ts';
import type { Usage } from '../core/records/usage.ts';
import { keptSections, storedSections } from '../core/sections.ts';
import { breakDown, inputCharacters } from '../models/input-breakdown.ts';
import type { FileContent } from '../blobs/store-files.ts';
import { mergeFields } from '../models/message-blocks.ts';
import { ModelError } from '../models/model-error.ts';
import type { ModelChunk } from '../models/provider.ts';
import { truncatedInput } from '../models/truncated-input.ts';
import { SectionDeltas } from '../models/section-deltas.ts';
import { MadeMedia } from './made-media.ts';
import type { PreparedModelCall } from './prepare-model-call.ts';
import { completeCalls, routeCalls, type CallHandling } from './route-calls.ts';
import { checkOutput } from './structured-output.ts';
import { foundServers, type Toolset } from '../tools/toolset.ts';
import { ToolCallDeltas } from './tool-call-deltas.ts';

interface AssemblerOptions {
  turnId: string;
  plan: MessagePlan;
  /** 0 for a speculative call, which is not published until `publish` is called. */
  attempt: number;
  prepared: Pick<
    PreparedModelCall,
    'toolset' | 'conversation' | 'files' | 'request' | 'spec' | 'target' | 'hasFallback' | 'repairs' | 'earlier'
  >;
  bus: LiveBus;
  /** Set for a message of the client's conversation: no model is called for it. */
  given?: GivenMessage | undefined;
  /** The tools for those of its calls that the agent has not made. */
  draftToolset?: Toolset | undefined;
}

/** Limit for one message: each call adds an activity, records and a result to the workflow. */
const MAX_CALLS = 500;

/** What happens to the calls and the files of a message. */
export interface MessageHandling extends CallHandling {
  /** Stores audio or an image that the model has made. */
  storeFile: (file: FileContent) => Promise<StoredFile>;
}

/** One event on the stream stays far below 1 MiB. */
const MAX_DELTA_BYTES = 256 * 1024;

/** Assembles a model's message from its chunks, and publishes each chunk on the live bus. */
export class MessageAssembler {
  usage: Usage | undefined;
  /** When the provider last sent a chunk, or was called. */
  lastChunkAt = Date.now();
  /** Whether the provider has sent a chunk. */
  isStreaming = false;
  /** The prepared model call that returns the message. */
  readonly prepared: AssemblerOptions['prepared'];
  readonly #options: AssemblerOptions;
  #state: 'held' | 'published' | 'finished';
  readonly #text: MessageText = emptyText();
  readonly #sections = new SectionDeltas();
  readonly #calls: ToolCallDeltas;
  #frames = 0;
  #finishReason: FinishReason | undefined;
  #providerFields: Record<string, unknown> | undefined;
  readonly #media = new MadeMedia();

  constructor(options: AssemblerOptions) {
    const { attempt, prepared } = options;
    const { toolset, conversation } = prepared;
    this.prepared = prepared;
    this.#options = options;
    this.#state = attempt === 0 ? 'held' : 'published';
    // The ids of a given message are the client's, which may have used them before.
    const earlier = options.given ? [] : conversation;
    const knownCalls = earlier.flatMap((item) => (item.role === 'tool' ? [item.toolCallId] : []));
    this.#calls = new ToolCallDeltas(knownCalls, (name) => toolset.tools.get(name)?.info ?? { type: 'system', name });
  }

  /** The text so far. */
  get content(): string {
    return this.#text.content;
  }

  /** Why no call of the message may run, and the turn ends. */
  get failure(): (TurnError & { code: TurnErrorCode }) | undefined {
    const { repeatedId } = this.#calls;
    if (repeatedId === undefined || !this.prepared.spec.failsWithTools) return undefined;
    const message = `The model gave the id ${repeatedId} to more than one tool call of a message.`;
    return { status: 'error', message, code: 'repeated_call_id' };
  }

  /** Whether it was cut off at the limit of output tokens, and is a message of the agent like any other. */
  get mayBeCutOff(): boolean {
    return this.#finishReason === 'length' && this.prepared.spec.keepsCutOffCalls === true;
  }

  /** The input in tokens that the model's server has read, if it has dropped the beginning of the conversation. */
  get truncatedInput(): number | undefined {
    const { request, earlier } = this.prepared;
    return this.usage && truncatedInput(request, this.usage, earlier);
  }

  /** Whether the model has written a complete message without content; it may have reasoning. */
  get isEmpty(): boolean {
    if (this.#options.given) return false;
    const { content, refusal, toolCalls, sections = [] } = this.#text;
    const hasParts = toolCalls.length > 0 || sections.some(({ hosted }) => hosted) || !this.#media.isEmpty;
    return this.#finishReason === 'stop' && !content && !refusal && !hasParts;
  }

  /** Reads a response to its end. @throws ModelError and other failures of the provider */
  async read(chunks: AsyncIterable<ModelChunk>): Promise<void> {
    this.lastChunkAt = Date.now();
    for await (const chunk of chunks) {
      this.lastChunkAt = Date.now();
      // A call that has waited for the limits of its provider begins with an empty chunk.
      this.isStreaming ||= Object.keys(chunk).length > 0;
      this.#add(chunk);
    }
  }

  /** Publishes the message so far and, from now on, each chunk. Without effect after `finish`. */
  publish(): void {
    if (this.#state !== 'held') return;
    this.#state = 'published';
    for (const delta of textDeltas(this.#text, MAX_DELTA_BYTES)) this.#send(delta);
  }

  /** Publishes nothing any more, and drops what was published: the log has the message, or another attempt replaces it. */
  finish(): void {
    this.#state = 'finished';
    const { turnId, plan, attempt, bus } = this.#options;
    bus.finish({ turnId, messageId: plan.messageId, attempt });
  }

  #add(chunk: ModelChunk): void {
    const { content, refusal, reasoning, toolCalls, finishReason, usage, providerFields } = chunk;
    const begun = this.#sections.before(chunk, this.#text);
    const calls = (toolCalls ?? []).map((call) => this.#calls.next(call)).filter((call) => call !== undefined);
    if (content || refusal || reasoning || calls.length > 0) {
      this.#grow({
        ...(content && { content }),
        ...(refusal && { refusal }),
        ...(reasoning && { reasoning }),
        ...(calls.length > 0 && { toolCalls: calls }),
        ...(begun.length > 0 && { sections: begun }),
      });
    }
    const sections = this.#sections.after(chunk, this.#text);
    if (sections.length > 0) this.#grow({ sections });
    if (this.#text.toolCalls.length > MAX_CALLS) {
      throw new ModelError('bad_request', `the model called more than ${MAX_CALLS} tools in one message`);
    }
    this.#media.add(chunk);
    if (finishReason) this.#finishReason = finishReason;
    if (usage) this.usage = this.#priced(usage);
    if (providerFields) this.#providerFields = mergeFields(this.#providerFields ?? {}, providerFields);
  }

  /**
   * The message as it enters the log, after the record of the connected servers if it is the first of its turn, and
   * before the results of the calls that do not run, and the sub-agents that it starts. An incomplete message keeps its
   * text but not its calls, because they may be incomplete too; for some agents it keeps those that are complete.
   * @param usage the usage of all attempts at the message
   */
  async records(
    end: 'answered' | 'cancelled' | 'error',
    usage: Usage,
    handling: MessageHandling,
  ): Promise<NewRecord[]> {
    const { plan } = this.#options;
    const { prepared } = this;
    const { messageId: id, createdAt, threadId } = plan;
    const isWhole = end === 'answered' && (this.#finishReason !== 'length' || this.mayBeCutOff);
    const isCutOff = end !== 'answered' && prepared.spec.keepsCutOffCalls === true;
    const calls = isWhole
      ? await routeCalls(this.#text.toolCalls, { ...this.#options, mayBeCutOff: this.mayBeCutOff }, handling)
      : isCutOff
        ? completeCalls(this.#text.toolCalls)
        : [];
    const message: ModelMessage = {
      kind: 'model.message',
      id,
      at: createdAt,
      threadId,
      content: this.#text.content,
      refusal: this.#text.refusal,
      reasoning: this.#text.reasoning,
      toolCalls: calls.map(({ call, routed }) => ({ ...call, route: routed.route })),
      finishReason: end === 'answered' ? this.#endReason(calls.length > 0) : end,
      ...reported(usage),
      ...(usage.inputTokens > 0 && {
        inputBreakdown: breakDown(usage.inputTokens, inputCharacters(prepared.request)),
      }),
      ...(this.#providerFields && { providerFields: this.#providerFields }),
      ...storedSections(
        this.#options.given?.sections ?? keptSections(this.#text, new Set(calls.map(({ call }) => call.id))),
      ),
      ...this.#origin,
      ...(prepared.files.extracted.length > 0 && { fileTexts: prepared.files.extracted }),
    };
    if (end === 'answered') {
      const { format = 'linear16' } = prepared.request.options?.audio ?? {};
      Object.assign(message, await this.#media.stored(format, handling.storeFile));
    }
    const isAnswer = isWhole && calls.length === 0 && !this.#options.given;
    const structured = isAnswer ? checkOutput(prepared.request.responseFormat, message, prepared.spec) : undefined;
    if (structured) message.structured = structured;
    const at = new Date().toISOString();
    const answers = calls.flatMap(
      ({
        call: { id: toolCallId },
        routed: { problem, content = problem, noResult, given, ...routed },
      }): NewRecord[] => {
        const base = { kind: 'tool.response', at, threadId, toolCallId } as const;
        if (given) return [{ ...base, ...given, isGiven: true }];
        const { outcome = problem === undefined ? 'succeeded' : 'failed' } = routed;
        return content === undefined ? [] : [{ ...base, outcome, content, ...(noResult && { noResult }) }];
      },
    );
    const threads = calls.flatMap(({ routed: { started } }): NewRecord[] =>
      started ? [{ kind: 'thread.created', at, ...started }] : [],
    );
    return [...this.#preceding(), message, ...answers, ...threads];
  }

  get #origin(): Pick<ModelMessage, 'isGiven' | 'images' | 'provider' | 'model'> {
    const { given } = this.#options;
    if (!given) return { provider: this.prepared.target.providerName, model: this.prepared.target.model };
    const { images, provider, model } = given;
    return {
      isGiven: true,
      ...(images && { images }),
      ...(provider !== undefined && { provider }),
      ...(model !== undefined && { model }),
    };
  }

  /** The record that enters the log before the message. */
  #preceding(): Omit<McpInitialized, 'id'>[] {
    const { plan } = this.#options;
    return plan.connectsServers ? [serversConnected(plan, foundServers(this.prepared.toolset))] : [];
  }

  /** Servers report different finish reasons for messages with tool calls, so the calls themselves decide. */
  #endReason(hasCalls: boolean): FinishReason {
    if (hasCalls) return 'tool_calls';
    const reason = this.#finishReason ?? 'stop';
    return reason === 'tool_calls' ? 'stop' : reason;
  }

  #priced(usage: Usage): Usage {
    const costInUsd = this.prepared.target.cost(usage);
    return costInUsd === undefined ? usage : { ...usage, costInUsd };
  }

  #grow(delta: MessageDelta): void {
    // At up to 6 bytes per character nearly all deltas certainly need no splitting.
    const isSmall = charactersOf(delta) * 6 < MAX_DELTA_BYTES;
    for (const part of isSmall ? [delta] : splitDelta(delta, MAX_DELTA_BYTES)) {
      applyDelta(this.#text, part);
      if (this.#state === 'published') this.#send(part);
    }
  }

  #send(delta: MessageDelta): void {
    const { turnId, plan, attempt, bus } = this.#options;
    const { threadId, messageId, createdAt, upTo: after } = plan;
    const [record] = this.#frames === 0 ? this.#preceding() : [];
    const preceding = record && { preceding: { ...record, id: eventId(turnId, after + 1) } };
    bus.publish({ turnId, threadId, messageId, createdAt, after, attempt, n: this.#frames, delta, ...preceding });
    this.#frames += 1;
  }
}

/** Omits a usage without any count. */
export function reported(usage: Usage): { usage?: Usage } {
  const { media: _, ...counts } = usage;
  return Object.values(counts).some((tokens) => tokens > 0) ? { usage } : {};
}
