import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Toolset } from '../tools/toolset.ts';
import type { LiveBus } from '../live/bus.ts';
import type { CallModelInput } from '../core/history.ts';
import { applyDelta, emptyText, splitDelta, type MessageDelta, type ToolCallText } from '../core/message.ts';
import {
  type FinishReason,
  type InputBreakdown,
  type ModelMessage,
  type NewRecord,
  type ToolRoute,
  type Usage,
} from '../core/records.ts';
import { breakDown } from '../models/input-breakdown.ts';
import { callHash } from '../engine/call-hash.ts';
import { ModelError } from '../models/model-error.ts';
import type { ModelChunk, OfferedTool } from '../models/provider.ts';
import { parseArguments } from '../tools/arguments.ts';
import { ToolCallDeltas } from './tool-call-deltas.ts';

interface AnswerOptions {
  input: CallModelInput;
  attempt: number;
  toolset: Toolset;
  /** Those of the toolset that the model was offered. */
  offered: OfferedTool[];
  /** How long the parts of the request are. */
  inputCharacters: InputBreakdown;
  /** The ids of the tool calls that the conversation has already. */
  knownCalls: Iterable<string>;
  bus: LiveBus;
}

/** In one message: each call is a workflow's activity, its records and its result. */
const MAX_CALLS = 500;

/** What becomes of a call. */
interface Decided {
  route: ToolRoute;
  problem?: string;
}

/** One event on the stream stays far below 1 MiB. */
const MAX_DELTA_BYTES = 256 * 1024;

/** A model's answer as it comes in: folded, and published frame by frame. */
export class MessageAssembler {
  usage: Usage | undefined;
  readonly #options: AnswerOptions;
  readonly #text = emptyText();
  readonly #calls: ToolCallDeltas;
  #frames = 0;
  #finishReason: FinishReason | undefined;
  #providerFields: Record<string, unknown> | undefined;

  constructor(options: AnswerOptions) {
    const { knownCalls, toolset } = options;
    this.#options = options;
    this.#calls = new ToolCallDeltas(knownCalls, (name) => toolset.tools.get(name)?.info ?? { type: 'system', name });
  }

  /** Whole, but without a word to anybody; there may be reasoning. */
  get isEmpty(): boolean {
    const { content, refusal, toolCalls } = this.#text;
    return this.#finishReason === 'stop' && !content && !refusal && toolCalls.length === 0;
  }

  add({ content, refusal, reasoning, toolCalls, finishReason, usage, providerFields }: ModelChunk): void {
    const calls = (toolCalls ?? []).map((call) => this.#calls.next(call)).filter((call) => call !== undefined);
    if (content || refusal || reasoning || calls.length > 0) {
      this.#publish({
        ...(content && { content }),
        ...(refusal && { refusal }),
        ...(reasoning && { reasoning }),
        ...(calls.length > 0 && { toolCalls: calls }),
      });
    }
    if (this.#text.toolCalls.length > MAX_CALLS) {
      throw new ModelError('bad_request', `the model called more than ${MAX_CALLS} tools in one message`);
    }
    if (finishReason) this.#finishReason = finishReason;
    if (usage) this.usage = usage;
    if (providerFields) this.#providerFields = mergeFields(this.#providerFields ?? {}, providerFields);
  }

  /**
   * The message as it enters the log, and the results of those calls that can't be carried out. A message that did not
   * come to its end keeps its text but not its calls, since nobody knows whether they were complete.
   * @param usage of all attempts at it
   */
  async records(end: 'answered' | 'cancelled' | 'error', usage: Usage): Promise<NewRecord[]> {
    const { messageId: id, createdAt, threadId } = this.#options.input;
    const isWhole = end === 'answered' && this.#finishReason !== 'length';
    const calls = isWhole ? await this.#routed() : [];
    const message: ModelMessage = {
      kind: 'model.message',
      id,
      at: createdAt,
      threadId,
      content: this.#text.content,
      refusal: this.#text.refusal,
      reasoning: this.#text.reasoning,
      toolCalls: calls.map(({ call, decided }) => ({ ...call, route: decided.route })),
      finishReason: end === 'answered' ? this.#endReason(calls.length > 0) : end,
      ...reported(usage),
      ...(usage.inputTokens > 0 && {
        inputBreakdown: breakDown(usage.inputTokens, this.#options.inputCharacters),
      }),
      ...(this.#providerFields && { providerFields: this.#providerFields }),
    };
    const at = new Date().toISOString();
    const problems = calls.flatMap(({ call: { id: toolCallId }, decided: { problem: content } }): NewRecord[] =>
      content === undefined ? [] : [{ kind: 'tool.response', at, threadId, toolCallId, outcome: 'failed', content }],
    );
    return [message, ...problems];
  }

  /** Each call in a turn of the event loop of its own: to check the arguments of one may take most of what is good for all others. */
  async #routed(): Promise<{ call: ToolCallText; decided: Decided }[]> {
    const routed = [];
    for (const call of this.#text.toolCalls) {
      routed.push({ call, decided: this.#route(call) });
      await nextTurn();
    }
    return routed;
  }

  #route(call: ToolCallText): Decided {
    const { name, arguments: args } = call;
    // A deferred tool may be called before it was found: its arguments are checked as those of any other.
    const tool = this.#options.toolset.tools.get(name);
    if (!tool) {
      const known = this.#options.offered.map((one) => one.name).join(', ') || 'none';
      return { route: { to: 'answered' }, problem: `There is no tool named ${name}. The tools are: ${known}.` };
    }
    const parsed = parseArguments(tool.parameters, args);
    if (!parsed.ok) return { route: { to: 'answered' }, problem: parsed.message };
    if (tool.run.to === 'client') return { route: { to: 'client' } };
    return { route: { ...tool.run, callHash: callHash(call) } };
  }

  /** Servers disagree on how they call the end of a message with tool calls; the calls are what counts. */
  #endReason(hasCalls: boolean): FinishReason {
    if (hasCalls) return 'tool_calls';
    const reason = this.#finishReason ?? 'stop';
    return reason === 'tool_calls' ? 'stop' : reason;
  }

  #publish(delta: MessageDelta): void {
    const { input, attempt, bus } = this.#options;
    const { turnId, threadId, messageId, createdAt, upTo: after } = input;
    for (const part of isSmall(delta) ? [delta] : splitDelta(delta, MAX_DELTA_BYTES)) {
      applyDelta(this.#text, part);
      bus.publish({ turnId, threadId, messageId, createdAt, after, attempt, n: this.#frames, delta: part });
      this.#frames += 1;
    }
  }
}

/** Nearly every delta: its length alone says that it needs no cutting, at 6 bytes for a character at most. */
function isSmall({ content, refusal, reasoning, toolCalls }: MessageDelta): boolean {
  const calls = toolCalls?.reduce((sum, call) => sum + 1_000 + (call.arguments?.length ?? 0), 0) ?? 0;
  const length = (content?.length ?? 0) + (refusal?.length ?? 0) + (reasoning?.length ?? 0) + calls;
  return length * 6 < MAX_DELTA_BYTES;
}

/** Usage that nobody has told us of is left out. */
export function reported(usage: Usage): { usage?: Usage } {
  return Object.values(usage).some((tokens) => tokens > 0) ? { usage } : {};
}

/** Lists come in pieces, like text; everything else is said again. */
function mergeFields(known: Record<string, unknown>, more: Record<string, unknown>): Record<string, unknown> {
  const merged = { ...known };
  for (const [name, value] of Object.entries(more)) {
    const before = merged[name];
    merged[name] = Array.isArray(before) && Array.isArray(value) ? [...before, ...value] : value;
  }
  return merged;
}
