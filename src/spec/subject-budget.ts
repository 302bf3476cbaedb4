import { z } from 'zod';
import type { BudgetAmounts } from '../core/budget.ts';

/** What all turns in the sessions of one subject may use. */
interface SubjectBudget {
  period: 'day' | 'month';
  limit: BudgetAmounts;
}

const RULE = 'must be day: or month:, and limits of tokens, usd, steps or seconds, such as day:usd=5,tokens=2000000';

const AMOUNT = /^(?:(tokens|steps|seconds)=(\d{1,12})|(usd)=(\d{1,12}(?:\.\d{1,6})?))$/;

/** Parses `<period>:<kind>=<amount>,...`. */
export const subjectBudget = z.string().transform((text, context): SubjectBudget => {
  const [, period, list = ''] = /^(day|month):(.+)$/.exec(text) ?? [];
  const amounts = list.split(',').map((part) => AMOUNT.exec(part.trim()));
  const limit: Record<string, number> = Object.fromEntries(
    amounts.flatMap((found) => (found ? [[found[1] ?? found[3], Number(found[2] ?? found[4])]] : [])),
  );
  const isValid = amounts.every((found) => found !== null) && Object.keys(limit).length === amounts.length;
  if ((period === 'day' || period === 'month') && isValid && Object.values(limit).every((amount) => amount > 0)) {
    return { period, limit };
  }
  context.issues.push({ code: 'custom', message: RULE, input: text });
  return z.NEVER;
});
