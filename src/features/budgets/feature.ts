import type { Feature } from '../feature.ts';
import { budgetsPart } from './shared-budgets.ts';
import { spendingReader } from './spending-rows.ts';

export const BUDGETS: Feature = {
  logReaders: () => [spendingReader],
  modelCallPart: ({ budgets }) => budgetsPart(budgets),
};
