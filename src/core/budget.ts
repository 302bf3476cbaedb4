import type { TurnTotals } from './turn-totals.ts';

export const BUDGET_KINDS = ['tokens', 'usd', 'steps', 'seconds'] as const;

type BudgetKind = (typeof BUDGET_KINDS)[number];

/**
 * Amounts of a budget: tokens of input and output, USD, model calls, and the time for which turns work. An absent limit
 * does not limit. In a spent amount, `usd` is absent if the price of a model is unknown.
 */
export type BudgetAmounts = { [Kind in BudgetKind]?: number };

/** What limits a turn: the turn's own use, or that of all turns of its session. */
export interface Budget {
  scope: 'turn' | 'session';
  limit: BudgetAmounts;
  /** A turn that reaches the limit ends; otherwise it is paused. */
  ends?: true;
}

/** A budget that was reached, or raised. */
export interface BudgetReport {
  scope: Budget['scope'] | 'subject';
  limit: BudgetAmounts;
  spent: BudgetAmounts;
}

/** What a turn has used after `workedMs` milliseconds of work. */
export function spentBy({ usage, modelCalls }: TurnTotals, workedMs: number): BudgetAmounts {
  const tokens = usage.inputTokens + usage.outputTokens;
  const usd = usage.costInUsd ?? (tokens === 0 ? 0 : undefined);
  return { tokens, ...(usd !== undefined && { usd }), steps: modelCalls, seconds: workedMs / 1000 };
}

/** The kinds whose limits are reached. An unknown amount reaches any limit. */
export function reachedKinds(limit: BudgetAmounts, spent: BudgetAmounts): BudgetKind[] {
  return BUDGET_KINDS.filter((kind) => (spent[kind] ?? Infinity) >= (limit[kind] ?? Infinity) && kind in limit);
}

export function isReached({ limit, spent }: Pick<BudgetReport, 'limit' | 'spent'>): boolean {
  return reachedKinds(limit, spent).length > 0;
}

/** The limits, raised to those of `given`. No limit is added or lowered. */
export function raised(limit: BudgetAmounts, given: BudgetAmounts): BudgetAmounts {
  return Object.fromEntries(
    BUDGET_KINDS.flatMap((kind) => {
      const before = limit[kind];
      return before === undefined ? [] : [[kind, Math.max(before, given[kind] ?? 0)]];
    }),
  );
}

/** What is left of the limits; `untilMs` is when the seconds are used up if the turn works on. */
export interface BudgetLeft extends Omit<BudgetAmounts, 'seconds'> {
  untilMs?: number;
}

export function leftOf(limit: BudgetAmounts, spent: BudgetAmounts, now: number): BudgetLeft {
  const { seconds, ...rest } = limit;
  const amounts: BudgetAmounts = rest;
  const left = Object.fromEntries(
    BUDGET_KINDS.flatMap((kind) => {
      const amount = amounts[kind];
      return amount === undefined ? [] : [[kind, amount - (spent[kind] ?? Infinity)]];
    }),
  );
  return { ...left, ...(seconds !== undefined && { untilMs: now + (seconds - (spent.seconds ?? 0)) * 1000 }) };
}

/** Whether the budget is used up after `totals` more. */
export function isUsedUp({ untilMs = Infinity, ...left }: BudgetLeft, totals: TurnTotals, now: number): boolean {
  return now >= untilMs || isReached({ limit: left, spent: spentBy(totals, 0) });
}

/** The limits that were reached, in words. */
export function exceeded({ scope, limit, spent }: BudgetReport): string {
  const reached = reachedKinds(limit, spent).map((kind) => {
    const amount = spent[kind];
    const used = amount === undefined ? 'an unknown amount' : String(Number(amount.toFixed(6)));
    return `${used} of ${limit[kind]} ${UNITS[kind]}`;
  });
  return `The ${scope} has used ${reached.join(', ')} of its budget.`;
}

const UNITS: Record<BudgetKind, string> = { tokens: 'tokens', usd: 'USD', steps: 'model calls', seconds: 'seconds' };
