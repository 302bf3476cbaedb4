import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { Account, Spending } from '../catalog/spending.ts';
import { NO_USAGE } from '../core/records.ts';
import type { ModelChunk, ModelRequest } from '../models/provider.ts';
import type { ModelTarget } from '../models/providers.ts';
import { BudgetReached, SharedBudgets } from './shared-budgets.ts';

const owner = { subjectId: 'ann', draftRoles: null };
const report = { scope: 'session' as const, limit: { steps: 1 }, spent: { steps: 1 } };

let counted: string[];

/** The chunks of a call of a model with the price of 1 USD per token, until `takes` of them were read. */
async function call({ isReached = false, takes = Infinity, sessionLimit = { steps: 1 } } = {}): Promise<ModelChunk[]> {
  counted = [];
  const keys = (accounts: readonly Account[]) => accounts.map(({ scope, id }) => `${scope}/${id}`).join();
  const spending = {
    begin: (accounts: readonly Account[]) => {
      counted.push(`begins ${keys(accounts)}`);
      return Promise.resolve(isReached ? report : undefined);
    },
    settle: (accounts: readonly Account[], { tokens, usd }: { tokens: number; usd: number }) => {
      counted.push(`${tokens} tokens, ${usd} USD: ${keys(accounts)}`);
      return Promise.resolve();
    },
  };
  async function* stream(): AsyncGenerator<ModelChunk> {
    counted.push('called');
    yield { content: 'a' };
    yield { usage: { ...NO_USAGE, inputTokens: 3, outputTokens: 2 } };
    yield { content: 'b' };
  }
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what a metered call needs
  const target = { provider: { stream }, cost: () => 5 } as unknown as ModelTarget;
  const budgets = new SharedBudgets({
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what a metered call needs
    catalog: { spending: spending as unknown as Spending },
    config: { subjectBudget: { period: 'month', limit: { steps: 1 } } },
    log: pino({ level: 'silent' }),
  });
  const metered = budgets.metered(target, { sessionId: 'ses_1', owner, sessionLimit });
  const chunks: ModelChunk[] = [];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it is not read
  for await (const chunk of metered.stream({} as ModelRequest, new AbortController().signal)) {
    chunks.push(chunk);
    if (chunks.length >= takes) break;
  }
  return chunks;
}

const BOTH = 'session/ses_1,subject/month/ann';

test('a model call counts before it is made, and what it has used when it has ended', async () => {
  expect(await call()).toHaveLength(3);
  expect(counted).toEqual([`begins ${BOTH}`, 'called', `5 tokens, 5 USD: ${BOTH}`]);
});

test('a call that is thrown away counts, with what it has reported', async () => {
  await call({ takes: 2 });
  expect(counted).toEqual([`begins ${BOTH}`, 'called', `5 tokens, 5 USD: ${BOTH}`]);
  await call({ takes: 1 });
  expect(counted).toEqual([`begins ${BOTH}`, 'called']);
});

test('a call above a budget is not made', async () => {
  await expect(call({ isReached: true })).rejects.toThrow(BudgetReached);
  expect(counted).toEqual([`begins ${BOTH}`]);
});
