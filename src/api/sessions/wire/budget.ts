import { z } from 'zod';

const amounts = { tokens: z.int().optional(), usd: z.number().optional(), steps: z.int().optional() };
const seconds = z.number().optional();

/** A budget that was reached, or raised. */
export const budgetReport = z
  .object({
    scope: z.enum(['turn', 'session', 'subject']),
    limit: z.object({ ...amounts, seconds }),
    spent: z.object({ ...amounts, seconds }).describe('`usd` is absent if the price of a model is unknown'),
  })
  .meta({ id: 'BudgetReport' });
