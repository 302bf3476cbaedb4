import { isReached, type BudgetReport } from '../../core/budget.ts';
import { EngineError } from '../../engine/errors.ts';
import type { ApiContext } from '../http/context.ts';

type BudgetContext = Pick<ApiContext, 'budgets' | 'catalog'> & { config: Pick<ApiContext['config'], 'subjectBudget'> };

/** What a subject may use in the current period of UTC, and has used. */
interface SubjectUse {
  report: BudgetReport;
  start: string;
  end: string;
}

/** Undefined if subjects have no budget. */
export async function useOf(
  { budgets, catalog, config }: BudgetContext,
  subjectId: string,
  now: Date,
): Promise<SubjectUse | undefined> {
  const { subjectBudget } = config;
  if (!subjectBudget) return undefined;
  const report = await catalog.spending.report(budgets.accountOf(subjectId));
  const [year, month, day] = [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()];
  const isDay = subjectBudget.period === 'day';
  return {
    report,
    start: new Date(Date.UTC(year, month, isDay ? day : 1)).toISOString(),
    end: new Date(isDay ? Date.UTC(year, month, day + 1) : Date.UTC(year, month + 1, 1)).toISOString(),
  };
}

/**
 * Refuses to begin work for a subject that has used up its budget. A turn that runs is paused instead when it reaches the
 * budget. @throws EngineError `budget_exceeded`
 */
export async function requireBudget(context: BudgetContext, subjectId: string): Promise<void> {
  const use = await useOf(context, subjectId, new Date());
  if (!use || !isReached(use.report)) return;
  const { report, end } = use;
  const details = { limit: report.limit.tokens ?? null, used: report.spent.tokens ?? null, window_end: end };
  throw new EngineError('budget_exceeded', `your budget is used up; it is renewed at ${end}`, { details });
}
