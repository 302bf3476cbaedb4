import { parseJson } from '../../tools/arguments.ts';
import {
  hasAnswer,
  ROOT_THREAD,
  type AnswerableCall,
  type LogRecord,
  type ModelMessage,
  type PauseReason,
  type ToolResponse,
  type TurnCreated,
  type TurnDone,
  type TurnOutcome,
  type Usage,
  type UserContentPart,
} from '../../core/records.ts';
import { isForClient, openTurnState } from '../../core/session-state.ts';
import { ASKED_AGAIN, callKey, responseText, type CallKey } from '../../core/tool-records.ts';
import { resourcePath } from './resource-paths.ts';
import type { EventType, Metrics, ModelCost, SessionEvent, ToolCallRequest } from './wire/events.ts';

/** What the turns of a session have used so far. */
export interface SessionTotals {
  steps: number;
  /** By the name of the model. */
  models: ReadonlyMap<string, Usage>;
}

export const NO_TOTALS: SessionTotals = { steps: 0, models: new Map() };

/** The calls that an ended turn has left without a result, by their keys. */
export interface UnansweredCalls {
  /** Those that wait for the client: the input of the next turn has their results. */
  ofClient: ReadonlyMap<string, ToolCallRequest>;
  /** Those that wait for a person: the next turn runs them. */
  ofServers: ReadonlyMap<string, ToolCallRequest>;
}

/**
 * A call that waits for a person: for an approval, an answer to a question of its server, or what it has done before
 * contact was lost.
 */
export interface UndecidedCall extends ToolCallRequest {
  needs: 'approval' | 'answer' | 'outcome';
  /** Why an approval is asked for once more. */
  reason?: string;
}

export const NO_CALLS: UnansweredCalls = { ofClient: new Map(), ofServers: new Map() };

interface TurnEventsOptions {
  /** Of the turns before it. */
  totals: SessionTotals;
  /** It is the first turn of its session. */
  isFirst: boolean;
  /** The session takes further messages after an answer; otherwise the answer ends it. */
  isInteractive: boolean;
  /** The calls that the turn before it has left without a result, by their keys: they get it in this one. */
  unanswered: UnansweredCalls;
  sessionId: string;
}

/**
 * The events of one turn for this API, and what they say of the session: a projection of the turn's log, record by
 * record. How many events a record gives, and in which order, must never change: clients count them.
 */
export class TurnEvents {
  readonly #options: TurnEventsOptions;
  #totals: SessionTotals;
  /** The calls without a result, by their keys. */
  readonly #calls: Map<string, ToolCallRequest>;
  /** The calls that wait for the client, in their order. */
  readonly #forClient = new Map<string, ToolCallRequest>();
  readonly #forPeople = new Map<string, UndecidedCall>();
  readonly #pauses = new Set<PauseReason>();
  /** Whether the last event about pauses said so. */
  #isShownPaused = false;
  #startedAt: string | undefined;
  #done: TurnDone | undefined;
  #answer: unknown;
  #hasAnswer = false;

  constructor(options: TurnEventsOptions) {
    this.#options = options;
    this.#totals = options.totals;
    this.#calls = new Map(options.unanswered.ofServers);
  }

  /** Of the session up to here. */
  get totals(): SessionTotals {
    return this.#totals;
  }

  get startedAt(): string | undefined {
    return this.#startedAt;
  }

  get done(): TurnDone | undefined {
    return this.#done;
  }

  get end(): TurnOutcome | undefined {
    return this.#done?.end;
  }

  /** The client-side calls without a result. */
  get waiting(): ReadonlyMap<string, ToolCallRequest> {
    return this.#forClient;
  }

  /** The calls that wait for a person. */
  get undecided(): UndecidedCall[] {
    return [...this.#forPeople.values()];
  }

  get unanswered(): UnansweredCalls {
    if (this.end?.status !== 'done' || this.end.requiredActions.length === 0) return NO_CALLS;
    const ofServers = [...this.#calls].filter(([key]) => !this.#forClient.has(key));
    return { ofClient: this.#forClient, ofServers: new Map(ofServers) };
  }

  get pauses(): ReadonlySet<PauseReason> {
    return this.#pauses;
  }

  /** The answer of the turn; undefined if it has given none. */
  get answer(): { value: unknown } | undefined {
    return this.#hasAnswer ? { value: this.#answer } : undefined;
  }

  feed(record: LogRecord): SessionEvent[] {
    const { at } = record;
    switch (record.kind) {
      case 'turn.created':
        return this.#created(record);
      case 'model.message':
        return this.#message(record);
      case 'tool.response':
        return this.#response(record);
      case 'tool.response_required':
        for (const call of record.calls) {
          // The server of such a call is answered, or its outcome is stated: that is not a result of the client.
          if (isForClient(call)) this.#wait(call);
          else this.#ask(call);
        }
        return this.#forClient.size > 0 ? [this.#activeState(at)] : [];
      case 'user.steered':
        return [messageEvent(at, [record.content], this.#options.sessionId)];
      case 'turn.paused':
      case 'turn.resumed':
        return this.#paused(record.kind === 'turn.paused', record.reason, at);
      case 'turn.done':
        return this.#ended(record);
      case 'context.compacted':
      case 'toolkit.refresh_required':
      case 'toolkit.refreshed':
      case 'mcp.initialize':
      case 'mcp.auth_required':
      case 'thread.created':
      case 'thread.done':
        return [];
      case 'tool.approval_required':
        for (const call of record.calls) this.#ask(call);
        return [];
      case 'tool.decided':
        // Others have to agree, or are asked, too.
        if (record.remaining === 0 || !['allow', 'escalated'].includes(record.decision)) {
          this.#forPeople.delete(callKey(record));
        }
        return [];
    }
  }

  #created({ at, input }: TurnCreated): SessionEvent[] {
    const { isFirst, sessionId } = this.#options;
    this.#startedAt = at;
    const messages = input.flatMap((item) => (item.type === 'user.message' ? [item.content] : []));
    const results = input.flatMap((item) => {
      if (item.type !== 'user.tool_response') return [];
      const request = this.#options.unanswered.ofClient.get(callKey(item));
      return request && item.threadId === ROOT_THREAD ? [resultEvent(at, request, item.content)] : [];
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
    const requests = toolCalls.map((call) => ({
      tool_name: call.name,
      args: argumentsOf(call.arguments),
      id: call.id,
    }));
    for (const request of requests) this.#calls.set(callKey({ threadId, toolCallId: request.id }), request);
    if (threadId !== ROOT_THREAD) return [];
    const step = {
      kind: 'policy_event' as const,
      reasoning_content: reasoning || null,
      content: content || message.refusal || null,
      tool_reqs: requests,
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
      counted.set(name, before ? sum(before, usage) : usage);
    }
    this.#totals = { steps: threadId === ROOT_THREAD ? steps + 1 : steps, models: counted };
  }

  #response(record: ToolResponse): SessionEvent[] {
    const { at, threadId, outcome, content, fullText } = record;
    const key = callKey(record);
    const request = this.#calls.get(key);
    const wasForClient = this.#forClient.delete(key);
    this.#forPeople.delete(key);
    // A long turn has many calls, and each may have large arguments.
    this.#calls.delete(key);
    const state = wasForClient ? [this.#activeState(at)] : [];
    if (threadId !== ROOT_THREAD || !request) return state;
    const result =
      outcome === 'succeeded'
        ? resultEvent(at, request, content, fullText && resourcePath(fullText, fullText.sessionId))
        : errorEvent(at, request, responseText({ outcome, content }));
    return [result, ...state];
  }

  /** A turn with nothing to do but client-side calls is not paused for this API: it awaits their results. */
  #paused(isStart: boolean, reason: PauseReason, at: string): SessionEvent[] {
    if (isStart) this.#pauses.add(reason);
    else this.#pauses.delete(reason);
    const state = openTurnState(this.#pauses, this.#forClient.size > 0);
    const isNow = state === 'paused' || state === 'waiting_person';
    const flow: SessionEvent[] =
      reason === 'requested'
        ? [event(at, 'AgentEvent', { kind: 'flow_event', flow: isStart ? 'pause' : 'resume', origin: 'user' })]
        : [];
    if (isNow === this.#isShownPaused) return flow;
    this.#isShownPaused = isNow;
    return [...flow, event(at, 'AgentRunStatusChangeEvent', { status: isNow ? 'paused' : 'running' })];
  }

  #ended(record: TurnDone): SessionEvent[] {
    this.#done = record;
    this.#pauses.clear();
    const { at, end } = record;
    if (end.status !== 'done' || end.requiredActions.length === 0) this.#forPeople.clear();
    const metrics = event(at, 'MetricsUpdateEvent', { metrics: metricsOf(this.#totals) });
    switch (end.status) {
      case 'done': {
        if (end.requiredActions.length > 0) return [metrics];
        this.#forClient.clear();
        if (!hasAnswer(end)) {
          return record.limit === 'time'
            ? [metrics, event(at, 'AgentCompletionEvent', { reason: 'timed_out' })]
            : [metrics, event(at, 'AgentErrorEvent', { error: NO_ANSWER, trace: '', info: null })];
        }
        this.#setAnswer(end.output);
        const answer = event(at, 'AgentEvent', { kind: 'answer_event', answer: this.#answer, outcome: null });
        const last = this.#options.isInteractive
          ? event(at, 'ActiveStateChangeEvent', { state: 'idle', pending_tool_calls: null })
          : event(at, 'AgentCompletionEvent', { reason: 'finished' });
        return [answer, metrics, last];
      }
      case 'error':
        this.#forClient.clear();
        return [
          metrics,
          event(at, 'AgentErrorEvent', { error: end.message, trace: '', info: end.code ? { code: end.code } : null }),
        ];
      case 'cancelled':
        this.#forClient.clear();
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

  #setAnswer(output: ModelMessage | null): void {
    if (!output) return;
    const { content, refusal, structured } = output;
    this.#hasAnswer = true;
    this.#answer = structured?.fits ? valueOf(content) : content || refusal;
  }

  #wait(call: CallKey): void {
    const request = this.#calls.get(callKey(call));
    if (request) this.#forClient.set(callKey(call), request);
  }

  #ask(call: AnswerableCall): void {
    const request = this.#calls.get(callKey(call));
    if (!request) return;
    const { unknownOutcome, elicitation, isAskedAgain } = call;
    const needs = unknownOutcome !== undefined ? 'outcome' : elicitation !== undefined ? 'answer' : 'approval';
    this.#forPeople.set(callKey(call), { ...request, needs, ...(isAskedAgain && { reason: ASKED_AGAIN }) });
  }

  #activeState(at: string): SessionEvent {
    const calls = [...this.#forClient.values()];
    return calls.length > 0
      ? event(at, 'ActiveStateChangeEvent', { state: 'awaiting_tool_results', pending_tool_calls: calls })
      : event(at, 'ActiveStateChangeEvent', { state: 'running', pending_tool_calls: null });
  }
}

/** What is wrong with a turn that is done and has said nothing. */
export const NO_ANSWER = 'The agent has ended without an answer.';

export function metricsOf({ steps, models }: SessionTotals): Metrics {
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

function sum(a: Usage, b: Usage): Usage {
  const { costInUsd: costOfA, ...before } = a;
  const cost = costOfA === undefined || b.costInUsd === undefined ? undefined : costOfA + b.costInUsd;
  return {
    ...before,
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    cacheReadTokens: a.cacheReadTokens + b.cacheReadTokens,
    cacheWriteTokens: a.cacheWriteTokens + b.cacheWriteTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
    ...(cost !== undefined && { costInUsd: cost }),
  };
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

function resultEvent(at: string, request: ToolCallRequest, content: string, path?: string): SessionEvent {
  return event(at, 'AgentEvent', {
    kind: 'tool_result',
    tool_req: request,
    result: valueOf(content),
    truncated: path !== undefined,
    output_artifact_path: path ?? null,
  });
}

function errorEvent(at: string, request: ToolCallRequest, error: string): SessionEvent {
  return event(at, 'AgentEvent', { kind: 'error_event', error, origin: 'tool', tool_req: request });
}

/** The arguments as an object; models write other texts, too. */
function argumentsOf(text: string): Record<string, unknown> {
  const value = valueOf(text);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object of JSON
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

/** The JSON value of a text, or the text if it is none. */
function valueOf(text: string): unknown {
  const parsed = parseJson(text);
  return 'value' in parsed ? parsed.value : text;
}
