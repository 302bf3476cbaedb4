import { parseJson, parseJsonObject } from '../../tools/arguments.ts';
import type { ToolCall } from '../../core/records/calls.ts';
import type { UserContentPart } from '../../core/records/input.ts';
import type { LogRecord } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { ToolResponse } from '../../core/records/results.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import { hasOutput, type TurnCreated, type TurnDone, type TurnPaused } from '../../core/records/turn.ts';
import { addUsage, type Usage } from '../../core/records/usage.ts';
import { callKey, responseText } from '../../core/tool-records.ts';
import { TurnView, type WaitingCall } from '../../core/turn-view.ts';
import { memoized } from '../../lib/memoized.ts';
import { resourcePath } from './resource-paths.ts';
import type { EventType, ModelCost, SessionEvent, SessionMetrics, ToolCallRequest } from './wire/events.ts';

/** What the turns of a session have used so far. */
export interface SessionTotals {
  steps: number;
  /** By the name of the model. */
  models: ReadonlyMap<string, Usage>;
}

export const NO_STEPS: SessionTotals = { steps: 0, models: new Map() };

export interface TurnEventsOptions {
  /** The totals of the turns before it. */
  totals: SessionTotals;
  /** It is the first turn of its session. */
  isFirst: boolean;
  /** The session takes further messages after an answer; otherwise the answer ends it. */
  isInteractive: boolean;
  /** The calls that the turn before it has left without a result, by their keys: this turn has their results. */
  leftCalls: ReadonlyMap<string, ToolCall>;
  sessionId: string;
}

/**
 * The events of one turn for this API, with its answer and the session's totals: a projection of the turn's log, record
 * by record. The number and the order of a record's events must never change: clients count them.
 */
export class TurnEvents {
  readonly #options: TurnEventsOptions;
  readonly view: TurnView;
  #totals: SessionTotals;
  /** Whether the last event about pauses has shown a pause. */
  #isShownPaused = false;
  #answer: { value: unknown } | undefined;

  constructor(options: TurnEventsOptions) {
    this.#options = options;
    this.#totals = options.totals;
    this.view = new TurnView(options.leftCalls);
  }

  /** The totals of the session up to here. */
  get totals(): SessionTotals {
    return this.#totals;
  }

  /** The answer of the turn; undefined if it has none. */
  get answer(): { value: unknown } | undefined {
    return this.#answer;
  }

  feed(record: LogRecord): SessionEvent[] {
    const { at } = record;
    const awaited = this.view.forClient.length;
    const call = this.view.add(record);
    switch (record.kind) {
      case 'turn.created':
        return this.#created(record);
      case 'model.message':
        return this.#message(record);
      case 'tool.response': {
        const state = this.view.forClient.length < awaited ? [this.#activeState(at)] : [];
        return call && record.threadId === ROOT_THREAD ? [eventOfResult(call, record), ...state] : state;
      }
      case 'tool.response_required':
        return this.view.forClient.length > 0 ? [this.#activeState(at)] : [];
      case 'user.steered':
        return [messageEvent(at, [record.content], this.#options.sessionId)];
      case 'turn.paused':
      case 'turn.resumed':
        return this.#paused(record);
      case 'turn.done':
        return this.#ended(record);
      case 'context.compacted':
      case 'feature.event':
      case 'toolkit.refresh_required':
      case 'toolkit.refreshed':
      case 'mcp.initialize':
      case 'mcp.auth_required':
      case 'thread.created':
      case 'thread.done':
      case 'tool.approval_required':
      case 'tool.decided':
        return [];
    }
  }

  #created({ at, input }: TurnCreated): SessionEvent[] {
    const { isFirst, leftCalls, sessionId } = this.#options;
    const messages = input.flatMap((item) => (item.type === 'user.message' ? [item.content] : []));
    const results = input.flatMap((item) => {
      if (item.type !== 'user.tool_response') return [];
      const call = leftCalls.get(callKey(item));
      // An answer to the question of a server is not the result of its call.
      const isResult = call?.route.to === 'client' && item.threadId === ROOT_THREAD;
      return isResult ? [resultEvent(at, call, item.content)] : [];
    });
    const start: SessionEvent[] = isFirst
      ? [
          event(at, 'RequestStartEvent', {}),
          event(at, 'RequestStartDispatchedEvent', { status: 'running' }),
          event(at, 'AgentStartedEvent', {}),
        ]
      : [this.#activeState(at)];
    return [...start, ...results, ...(messages.length > 0 ? [messageEvent(at, messages, sessionId)] : [])];
  }

  #message(message: ModelMessage): SessionEvent[] {
    const { at, threadId, toolCalls, content, reasoning, structured } = message;
    this.#count(message);
    if (threadId !== ROOT_THREAD) return [];
    const step = {
      kind: 'policy_event' as const,
      reasoning_content: reasoning || null,
      content: content || message.refusal || null,
      tool_reqs: toolCalls.map(toRequest),
      validation_errors: structured?.fits === false ? [structured.problem] : [],
    };
    return [event(at, 'AgentEvent', step)];
  }

  #count({ usage, provider, model, threadId }: ModelMessage): void {
    const { steps, models } = this.#totals;
    const counted = new Map(models);
    if (usage && model !== undefined) {
      const name = provider === undefined ? model : `${provider}/${model}`;
      const before = counted.get(name);
      counted.set(name, before ? sumOfModel(before, usage) : usage);
    }
    this.#totals = { steps: threadId === ROOT_THREAD ? steps + 1 : steps, models: counted };
  }

  /** A turn with nothing to do but client-side calls is not paused for this API: it awaits their results. */
  #paused({ kind, reason, at }: TurnPaused): SessionEvent[] {
    const { openState } = this.view;
    const isNow = openState === 'paused' || openState === 'waiting_person';
    const flow = kind === 'turn.paused' ? 'pause' : 'resume';
    const events =
      reason === 'requested' ? [event(at, 'AgentEvent', { kind: 'flow_event', flow, origin: 'user' })] : [];
    if (isNow === this.#isShownPaused) return events;
    this.#isShownPaused = isNow;
    return [...events, event(at, 'AgentRunStatusChangeEvent', { status: isNow ? 'paused' : 'running' })];
  }

  #ended(record: TurnDone): SessionEvent[] {
    const { at, end } = record;
    const metrics = event(at, 'MetricsUpdateEvent', { metrics: metricsOf(this.#totals) });
    switch (end.status) {
      case 'done': {
        if (end.requiredActions.length > 0) return [metrics];
        if (!hasOutput(end)) {
          return record.limit === 'time'
            ? [metrics, event(at, 'AgentCompletionEvent', { reason: 'timed_out' })]
            : [metrics, event(at, 'AgentErrorEvent', { error: NO_ANSWER, trace: '', info: null })];
        }
        this.#answer = { value: answerOf(end.output) };
        const answer = event(at, 'AgentEvent', { kind: 'answer_event', answer: this.#answer.value, outcome: null });
        const last = this.#options.isInteractive
          ? event(at, 'ActiveStateChangeEvent', { state: 'idle', pending_tool_calls: null })
          : event(at, 'AgentCompletionEvent', { reason: 'finished' });
        return [answer, metrics, last];
      }
      case 'error':
        return [
          metrics,
          event(at, 'AgentErrorEvent', { error: end.message, trace: '', info: end.code ? { code: end.code } : null }),
        ];
      case 'cancelled':
        // The next turn continues.
        if (end.reason === 'cancelled-for-next-turn') return [metrics];
        return [
          metrics,
          event(at, 'AgentCompletionEvent', {
            reason: end.reason === 'server-execution-timeout' ? 'timed_out' : 'stopped',
          }),
        ];
    }
  }

  #activeState(at: string): SessionEvent {
    const calls = this.view.forClient.map(waitingRequest);
    return calls.length > 0
      ? event(at, 'ActiveStateChangeEvent', { state: 'awaiting_tool_results', pending_tool_calls: calls })
      : event(at, 'ActiveStateChangeEvent', { state: 'running', pending_tool_calls: null });
  }
}

/** The error of a turn that is done without an answer. */
export const NO_ANSWER = 'The agent has ended without an answer.';

export function metricsOf({ steps, models }: SessionTotals): SessionMetrics {
  const costs = [...models].map(([name, usage]): ModelCost => {
    const total = usage.costInUsd ?? null;
    return {
      ...tokensOf(name, usage),
      // The price list gives the cost of a call as a whole.
      input_cost: null,
      output_cost: null,
      reasoning_cost: null,
      total_cost: total,
    };
  });
  const total = costs.reduce<number | null>(
    (all, { total_cost: one }) => (all === null || one === null ? null : all + one),
    0,
  );
  return { steps, cost_per_model: costs, input_cost: null, output_cost: null, reasoning_cost: null, total_cost: total };
}

export function tokensOf(name: string, usage: Usage) {
  return {
    name,
    input_tokens: usage.inputTokens,
    cached_tokens: usage.cacheReadTokens,
    output_tokens: usage.outputTokens,
    reasoning_tokens: usage.reasoningTokens,
  };
}

/** The total usage of calls of one model. Its cost is unknown if the cost of a call is unknown. */
function sumOfModel(a: Usage, b: Usage): Usage {
  const { costInUsd: _, ...usage } = addUsage(a, b);
  if (a.costInUsd === undefined || b.costInUsd === undefined) return usage;
  return { ...usage, costInUsd: a.costInUsd + b.costInUsd };
}

function event<T extends EventType>(
  timestamp: string,
  type: T,
  data: Extract<SessionEvent, { type: T }>['data'],
): SessionEvent {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the data belongs to the type
  return { type, data, timestamp } as SessionEvent;
}

function messageEvent(at: string, contents: (string | UserContentPart[])[], sessionId: string): SessionEvent {
  const content = contents.flat().map((part) => {
    if (typeof part === 'string') return part;
    if (part.type === 'text') return part.text;
    const source = 'blob' in part ? resourcePath(part, sessionId) : `data:${part.mimeType};base64,${part.base64}`;
    return { type: 'url' as const, source, media_type: part.mimeType };
  });
  return event(at, 'AgentEvent', { kind: 'message_event', caller_id: 'user', content });
}

/** The event of a call's result. */
function eventOfResult(call: ToolCall, { at, outcome, content, fullText }: ToolResponse): SessionEvent {
  if (outcome === 'succeeded') {
    return resultEvent(at, call, content, fullText && resourcePath(fullText, fullText.sessionId));
  }
  const error = responseText({ outcome, content });
  return event(at, 'AgentEvent', { kind: 'error_event', error, origin: 'tool', tool_req: toRequest(call) });
}

function resultEvent(at: string, call: ToolCall, content: string, path?: string): SessionEvent {
  return event(at, 'AgentEvent', {
    kind: 'tool_result',
    tool_req: toRequest(call),
    result: valueOf(content),
    truncated: path !== undefined,
    output_artifact_path: path ?? null,
  });
}

/** A call as this API shows it. Models also write arguments that are not objects. */
export function toRequest({ id, name, arguments: args }: ToolCall): ToolCallRequest {
  return { tool_name: name, args: parseJsonObject(args) ?? {}, id };
}

/** The same for a waiting call; memoized, since each poll shows the call and its arguments may be large. */
export const waitingRequest = memoized(({ call }: WaitingCall) => toRequest(call));

function answerOf({ content, refusal, structured }: ModelMessage): unknown {
  return structured?.fits ? valueOf(content) : content || refusal;
}

/** The JSON value of a text, or the text if it is not JSON. */
function valueOf(text: string): unknown {
  const parsed = parseJson(text);
  return 'value' in parsed ? parsed.value : text;
}
