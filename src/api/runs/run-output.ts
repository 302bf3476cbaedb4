import type { Reader } from '../../auth/rights.ts';
import { ulidIn } from '../../core/ids.ts';
import type { ToolCall } from '../../core/records/calls.ts';
import type { LogRecord } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { ToolOutcome, ToolResponse } from '../../core/records/results.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import type { TurnDone } from '../../core/records/turn.ts';
import { addUsage, NO_USAGE, type Usage } from '../../core/records/usage.ts';
import { hasNoResult, responseText, unsuccessfulResponse } from '../../core/tool-records.ts';
import { executedWith } from '../../core/transcript.ts';
import { TurnView } from '../../core/turn-view.ts';
import { dollars } from '../../lib/dollars.ts';
import type { Pricing } from '../../spec/agent-spec.ts';
import { argumentsOf, resultParts, toModelParts, usageToWire } from './output-parts.ts';
import { costBy } from './pricing.ts';
import { isActionRequired, toRequiredAction } from './required-action.ts';
import { toRunError } from './run-error.ts';
import type { ModelPart, Run, RunError, RunFigures, RunHeader, RunItem, RunStatus } from './wire/run.ts';

export interface RunLimits {
  maxTurns: number;
  actionTimeoutSeconds: number;
  /** The prices in the request for calls of the first of these models. The others are its fallbacks. */
  pricing?: { models: string[]; prices: Pricing };
}

/** A call of the root thread, until its item is complete. */
interface OpenCall {
  call: ToolCall;
  response?: Omit<ToolResponse, 'id'>;
}

/** The status in llm-sdk for the outcome of a call. A call that was not answered in time was not executed. */
const STATUSES: Record<ToolOutcome, 'completed' | 'failed' | 'cancelled'> = {
  succeeded: 'completed',
  failed: 'failed',
  denied: 'failed',
  expired: 'cancelled',
  cancelled: 'cancelled',
  unknown_outcome: 'failed',
};

/**
 * The output of a run so far: a projection of its log, record by record. Records must have the content of their files
 * (see `loadFiles`).
 *
 * Items are in the order in which the next run takes them as input: a message, then the results of its calls in their
 * order, each as soon as all before it are complete. Items of the request are never among them.
 */
export class RunOutput {
  readonly #limits: RunLimits;
  /** The state of the run's turn, such as what it waits for. */
  readonly view = new TurnView();
  readonly #items: RunItem[] = [];
  #content: ModelPart[] = [];
  #turns = 0;
  #usage: Usage | undefined;
  #cost: number | null = null;
  #unreported = 0;
  /** The last message of the root thread. */
  #last: ModelMessage | undefined;
  /** The calls of the root thread whose items are not complete, in their order. */
  readonly #open: OpenCall[] = [];
  /** A lost record may have been the result of one of them: they may have been executed, and are not repeated. */
  #isDamaged = false;
  #failed: { call: ToolCall; response: ToolResponse } | undefined;
  #hasExpired = false;
  #error: RunError | undefined;

  constructor(limits: RunLimits) {
    this.#limits = limits;
  }

  /** The new items, in order. */
  get items(): readonly RunItem[] {
    return this.#items;
  }

  get status(): RunStatus {
    if (this.#error) return 'failed';
    const { done } = this.view;
    if (done) return done.end.status === 'cancelled' ? 'cancelled' : 'completed';
    return isActionRequired(this.view) ? 'requires_action' : 'running';
  }

  /** Set if the run has failed. */
  get error(): RunError | undefined {
    return this.#error;
  }

  /** Whether the run has not ended. */
  get isOpen(): boolean {
    return this.view.done === undefined;
  }

  /** Adds the next record of the log. Returns the items that it completes. */
  feed(record: LogRecord): RunItem[] {
    const known = this.#items.length;
    this.#add(record);
    return this.#items.slice(known);
  }

  /** The run as its clients see it. */
  run(header: RunHeader, reader: Reader): Run {
    const { status, ...rest } = this.summary(reader);
    return { ...header, status, content: this.#content, output: [...this.#items], ...rest };
  }

  /** The fields of the run in lists, beside its header. */
  summary(reader: Reader): RunFigures {
    const { status } = this;
    const { created, done } = this.view;
    const repaired = created?.conversation?.repaired ?? [];
    const json = status === 'completed' ? this.#json : undefined;
    return {
      status,
      completed_at: done?.at ?? null,
      turns: this.#turns,
      usage: this.#usage ? (usageToWire(this.#usage) ?? null) : null,
      cost: this.#cost,
      unreported_attempts: this.#unreported,
      ...(json && { output_json: json.value }),
      ...(repaired.length > 0 && { repaired }),
      ...(status === 'requires_action' && {
        required_action: toRequiredAction(this.view, {
          turn: this.#turns,
          timeoutSeconds: this.#limits.actionTimeoutSeconds,
          reader,
        }),
      }),
      ...(this.#error && { error: this.#error }),
    };
  }

  #add(record: LogRecord): void {
    const call = this.view.add(record);
    if (record.kind === 'model.message') this.#message(record);
    else if (record.kind === 'tool.response') this.#response(record, call);
    else if (record.kind === 'turn.done') this.#end(record);
  }

  #message(message: ModelMessage): void {
    const { threadId, toolCalls, isGiven } = message;
    if (message.isLost && this.#open.length > 0) {
      this.#isDamaged = true;
      return;
    }
    if (threadId !== ROOT_THREAD) return;
    if (this.#isDamaged) this.#settle('unknown_outcome', message.at);
    this.#last = message;
    this.#open.push(...toolCalls.map((call) => ({ call })));
    const content = toModelParts(message);
    if (isGiven) {
      // A message without calls is the content of the run.
      if (toolCalls.length === 0) this.#content = content;
      return;
    }
    const counted = message.usage && usageToWire(message.usage);
    const cost = counted && this.#costOf(message);
    this.#count(message, { isItem: content.length > 0, cost });
    if (content.length === 0) return;
    this.#content = content;
    const { at, model, finishReason } = message;
    this.#items.push({
      type: 'model',
      id: this.#itemId(),
      created_at: at,
      content,
      ...(counted && { usage: counted }),
      ...(cost !== undefined && { cost }),
      ...(model !== undefined && { model }),
      finish_reason: finishReason,
    });
  }

  /** The totals are those of the items: a message without content is not an item. */
  #count({ usage, finishReason }: ModelMessage, { isItem, cost }: { isItem: boolean; cost: number | undefined }): void {
    const isCalled = isItem || usage !== undefined || (finishReason !== 'cancelled' && finishReason !== 'error');
    if (isCalled) this.#turns += 1;
    this.#unreported += usage?.unreportedAttempts ?? 0;
    if (!isItem) return;
    const isFirst = !this.#items.some(({ type }) => type === 'model');
    const before = isFirst ? 0 : this.#cost;
    this.#cost = cost === undefined || before === null ? null : dollars(before + cost);
    if (usage) this.#usage = addUsage(this.#usage ?? NO_USAGE, usage);
  }

  /** Undefined if the price of the model is unknown. */
  #costOf({ usage, provider, model }: ModelMessage): number | undefined {
    const { pricing } = this.#limits;
    const full = `${provider}/${model}`;
    const isPriced = pricing && pricing.models[0] === (pricing.models.includes(full) ? full : model);
    const cost = usage && isPriced ? costBy(pricing.prices, usage) : usage?.costInUsd;
    return cost === undefined ? undefined : dollars(cost);
  }

  #response(response: ToolResponse, call: ToolCall | undefined): void {
    if (response.outcome === 'expired') this.#hasExpired = true;
    if (response.threadId !== ROOT_THREAD) return;
    if (call && hasNoResult(response)) this.#failed ??= { call, response };
    const open = this.#open.find((one) => one.call.id === response.toolCallId && !one.response);
    if (open) open.response = response;
    this.#complete();
  }

  /** Makes items of the calls that are complete, up to the first one that is not. */
  #complete(): void {
    for (let [next] = this.#open; next?.response; [next] = this.#open) {
      this.#open.shift();
      if (isNew(next.response)) this.#items.push(this.#toolItem(next.call, next.response));
    }
  }

  #toolItem(call: ToolCall, response: Omit<ToolResponse, 'id'>): RunItem {
    const { at, outcome, arguments: executed, content, files, isReused } = response;
    const status = STATUSES[outcome];
    const text = executedWith(executed, responseText({ outcome, content }));
    return {
      type: 'tool',
      id: this.#itemId(),
      created_at: at,
      tool_call_id: call.id,
      tool_name: call.name,
      input: argumentsOf(executed ?? call.arguments).args,
      output: status === 'cancelled' ? [] : resultParts(text, files),
      is_error: status !== 'completed',
      status,
      outcome,
      ...(isReused && { reused: true as const }),
      ...((call.route.to !== 'answered' || call.route.ran) && {
        operation_id: this.view.operationIdOf({ threadId: ROOT_THREAD, toolCallId: call.id }),
      }),
    };
  }

  /** Completes the calls whose results are missing. */
  #settle(outcome: 'unknown_outcome' | 'cancelled', at: string): void {
    for (const open of this.#open) {
      const { id: toolCallId } = open.call;
      open.response ??= unsuccessfulResponse({ threadId: ROOT_THREAD, toolCallId }, outcome, at);
    }
    this.#complete();
  }

  #end(record: TurnDone): void {
    // A log has a result of each call at its end; a run that ended otherwise did not execute the call.
    this.#settle(this.#isDamaged ? 'unknown_outcome' : 'cancelled', record.at);
    const { maxTurns } = this.#limits;
    const { end } = record;
    this.#error = toRunError({ end, last: this.#last, failed: this.#failed, hasExpired: this.#hasExpired, maxTurns });
  }

  get #json(): { value: unknown } | undefined {
    if (!this.#last?.structured?.fits) return undefined;
    return { value: JSON.parse(this.#last.content) };
  }

  /** The id contains that of the run, which is found by it when a client sends the item back. */
  #itemId(): string {
    const { turnId } = this.view.created ?? { turnId: '' };
    return `item_${ulidIn(turnId)}_${this.#items.length}`;
  }
}

/** Whether the result is new: the client has not sent it. */
function isNew({ isGiven, isReused }: Pick<ToolResponse, 'isGiven' | 'isReused'>): boolean {
  return !isGiven || isReused === true;
}
