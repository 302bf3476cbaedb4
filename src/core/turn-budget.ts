import {
  BUDGET_KINDS,
  exceeded,
  isReached,
  leftOf,
  raised,
  spentBy,
  type Budget,
  type BudgetAmounts,
  type BudgetLeft,
  type BudgetReport,
} from './budget.ts';
import { asks, heldByAsking } from './call-order.ts';
import type { TurnStart } from './history.ts';
import type { Refusal } from './input-rules.ts';
import type { Pauses } from './pauses.ts';
import type { UnsequencedRecord } from './records/log.ts';
import { violatesSchema, type ModelMessage } from './records/message.ts';
import { ROOT_THREAD } from './records/threads.ts';
import type { Steering } from './steering.ts';
import type { Subject } from './subject.ts';
import type { PauseCommand, Verdict } from './turn-command.ts';
import { addRecord, NO_TOTALS, type TurnTotals } from './turn-totals.ts';

/** What a run of a turn passes on when it continues as new. */
interface State {
  limit: BudgetAmounts;
  ahead: RemainingWork;
  shared?: BudgetReport;
}

/** What the root agent still does, according to its last message. */
interface RemainingWork {
  /** The calls of the message that run, or are about to. */
  calls: string[];
  /** The model is called again after them. */
  isModelCalled: boolean;
}

const NOTHING_LEFT: RemainingWork = { calls: [], isModelCalled: false };

/** How a command raises a budget. */
type Raise = Pick<PauseCommand, 'budget' | 'shared'>;

interface TurnBudgetOptions {
  start: Pick<TurnStart, 'budget' | 'pause' | 'createdAt' | 'begun' | 'carry'>;
  pauses: Pauses;
  steering: Steering;
}

/**
 * The budget of a turn, for all threads together. It is reached at the end of the workflow task whose records reach it,
 * and then holds the turn, unless the turn is about to end: no thread begins a model call or a tool call, and running
 * calls run to their end. A part of `TurnActions`.
 */
export class TurnBudget {
  readonly #budget: Budget | undefined;
  readonly #pauses: Pauses;
  readonly #steering: Steering;
  readonly #waits: boolean;
  readonly #createdAt: number;
  /** How long the turn has waited in the queue of its session. */
  readonly #queuedMs: number;
  #limit: BudgetAmounts;
  #totals: TurnTotals;
  #remaining: RemainingWork;
  /** The budget of the session or the subject that was reached, and was not raised yet. */
  #shared: BudgetReport | undefined;
  /** The shared budget, after it was raised. */
  #raised: BudgetReport | undefined;
  #failure: string | undefined;

  constructor({ start, pauses, steering }: TurnBudgetOptions) {
    const { budget, pause, createdAt, begun, carry } = start;
    const { limit, ahead: remaining = { calls: [], isModelCalled: true }, shared } = carry?.budget ?? {};
    this.#budget = budget;
    this.#pauses = pauses;
    this.#steering = steering;
    this.#waits = pause === 'wait';
    this.#createdAt = Date.parse(createdAt);
    this.#queuedMs = begun ? Date.parse(begun.at) - this.#createdAt : 0;
    // A budget that the turn shares is checked by its calls themselves.
    this.#limit = limit ?? (budget?.scope === 'turn' ? budget.limit : {});
    this.#shared = shared;
    this.#remaining = remaining;
    const { usage, modelCalls, toolCalls } = carry ?? NO_TOTALS;
    this.#totals = { usage, modelCalls, toolCalls };
  }

  /** Undefined for a turn without a budget. */
  get state(): State | undefined {
    const shared = this.#shared;
    if (!this.#budget && !shared) return undefined;
    return { limit: this.#limit, ahead: this.#remaining, ...(shared && { shared }) };
  }

  /** The budget for which the turn is paused, if the turn shares it with others. */
  get shared(): BudgetReport | undefined {
    return this.#shared;
  }

  get isHolding(): boolean {
    return this.#pauses.has('budget');
  }

  /** Why the turn must end: its budget was reached, and does not pause it. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** What is left for a model call that begins now. */
  left(now: number): BudgetLeft | undefined {
    return this.#budget?.scope === 'turn' ? leftOf(this.#limit, this.#spent(now), now) : undefined;
  }

  /** How long the turn has waited in the queue of its session and was paused, in milliseconds. */
  idleUntil(now: number): number {
    return this.#queuedMs + this.#pauses.waitedUntil(now);
  }

  /** How long the turn has worked, in milliseconds. */
  workedUntil(now: number): number {
    return now - this.#createdAt - this.idleUntil(now);
  }

  add(record: UnsequencedRecord): void {
    if (!this.#budget) return;
    this.#totals = addRecord(this.#totals, record);
    if (!('threadId' in record) || record.threadId !== ROOT_THREAD) return;
    if (record.kind === 'model.message') this.#remaining = workAfter(record, this.#waits);
    if (record.kind !== 'tool.response') return;
    const { calls, isModelCalled } = this.#remaining;
    this.#remaining = { calls: calls.filter((id) => id !== record.toolCallId), isModelCalled };
  }

  /** A model call was not made, because a budget that the turn shares was reached. */
  sharedReached(report: BudgetReport): void {
    this.#shared = report;
  }

  /** Whether the end of the current task changes something. */
  isDue(now: number): boolean {
    return this.#mayChange && this.#isReached(now) !== this.isHolding;
  }

  /** `by`: the subject whose command has raised the budget. */
  endTask(now: number, by: Subject | undefined): UnsequencedRecord[] {
    if (!this.#mayChange) return [];
    const isReached = this.#isReached(now);
    if (isReached && this.#budget?.ends) {
      this.#failure = exceeded(this.#report(now));
      return [];
    }
    const records = this.#pauses.set('budget', isReached, now, isReached ? undefined : by);
    const report = (isReached ? undefined : this.#raised) ?? this.#report(now);
    this.#raised = undefined;
    const isHidden = !this.#waits && this.#budget === undefined;
    return records.map((record) => ({ ...record, budget: report, ...(isHidden && { isHidden }) }));
  }

  /** Why the turn would stay paused after a command. */
  refuse(raise: Raise | undefined, now: number): Verdict {
    if (!this.isHolding) return undefined;
    const own = this.#ownReport(now);
    const next = { ...own, limit: raised(own.limit, raise?.budget ?? {}) };
    if (this.#shared && !raise?.shared) return budgetExceeded(this.#shared);
    return isReached(next) ? budgetExceeded(next) : undefined;
  }

  raise({ budget = {}, shared }: Raise): void {
    this.#limit = raised(this.#limit, budget);
    if (!this.#shared || !shared) return;
    this.#shared = undefined;
    this.#raised = shared;
  }

  /** Whether the limits are at least these. */
  hasRaised(budget: BudgetAmounts = {}): boolean {
    const next = raised(this.#limit, budget);
    return BUDGET_KINDS.every((kind) => this.#limit[kind] === next[kind]);
  }

  /** Readers may have seen the beginning of the root agent's message at its position: no record may precede it. */
  get #mayChange(): boolean {
    const isKnown = this.#budget !== undefined || this.#shared !== undefined || this.isHolding;
    return isKnown && this.#failure === undefined && !this.#steering.isCalling;
  }

  #isReached(now: number): boolean {
    if (this.#shared) return true;
    const { calls, isModelCalled } = this.#remaining;
    const isWorkLeft = calls.length > 0 || isModelCalled || this.#steering.hasUnread;
    return isWorkLeft && isReached(this.#ownReport(now));
  }

  #report(now: number): BudgetReport {
    return this.#shared ?? this.#ownReport(now);
  }

  #ownReport(now: number): BudgetReport {
    return { scope: 'turn', limit: this.#limit, spent: this.#spent(now) };
  }

  #spent(now: number): BudgetAmounts {
    return spentBy(this.#totals, this.workedUntil(now));
  }
}

export function budgetExceeded(report: BudgetReport): Refusal {
  const message = `${exceeded(report)} Resume the turn with a higher budget.`;
  return { code: 'budget_exceeded', message, param: 'budget' };
}

/**
 * What the root agent does after a message. A turn that does not wait ends with the calls that ask, and those that wait
 * behind them, once the others have ended.
 */
function workAfter(message: ModelMessage, waits: boolean): RemainingWork {
  const { finishReason, toolCalls } = message;
  if (finishReason === 'cancelled' || finishReason === 'error') return NOTHING_LEFT;
  if (finishReason === 'length' && !violatesSchema(message)) return NOTHING_LEFT;
  const held = waits ? undefined : heldByAsking(toolCalls);
  const running = toolCalls.filter((call) => call.route.to !== 'answered' && !asks(call.route) && !held?.has(call));
  const isAnswered = toolCalls.length > 0 && (waits || !toolCalls.some(({ route }) => asks(route)));
  return { calls: running.map(({ id }) => id), isModelCalled: violatesSchema(message) || isAnswered };
}
