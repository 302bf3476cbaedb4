import { z } from 'zod';
import { BUDGET_KINDS, type Budget } from '../core/budget.ts';

/** Amounts are bounded so that sums of them stay exact. */
const count = z.int().min(1).max(1_000_000_000_000);

/** The limits of a budget; those that are absent do not limit. */
export const budgetAmounts = z.strictObject({
  tokens: count.nullish().describe('of input and output, as the models report them'),
  usd: z.number().positive().max(1_000_000_000).nullish().describe('requires that the prices of all models are known'),
  steps: count.nullish().describe('model calls, with those of sub-agents and those that write summaries'),
  seconds: count.nullish().describe('of work: the time for which turns are paused or wait does not count'),
});

export const budgetSpec = budgetAmounts
  .extend({
    scope: z.enum(['turn', 'session']).nullish().describe('whose use counts; default turn'),
    on_exceeded: z
      .enum(['pause', 'end'])
      .nullish()
      .describe('what a turn does that reaches it: pause until the budget is raised (default), or end with an error'),
  })
  .meta({ id: 'Budget' });

/** A turn's budget according to its agent. */
export function budgetOf(spec: z.infer<typeof budgetSpec> | null | undefined): Budget | undefined {
  if (!spec) return undefined;
  const { scope, on_exceeded: onExceeded, ...amounts } = spec;
  const limit = limitsOf(amounts);
  if (Object.keys(limit).length === 0) return undefined;
  return { scope: scope ?? 'turn', limit, ...(onExceeded === 'end' && { ends: true }) };
}

export function limitsOf(amounts: z.infer<typeof budgetAmounts>): Budget['limit'] {
  return Object.fromEntries(
    BUDGET_KINDS.flatMap((kind) => {
      const amount = amounts[kind];
      return typeof amount === 'number' ? [[kind, amount]] : [];
    }),
  );
}
