import type { Kysely, Transaction } from 'kysely';
import { raised, reachedKinds, type BudgetAmounts, type BudgetReport } from '../core/budget.ts';
import type { SpendingRow, Tables } from './schema.ts';

/** A budget that several turns share. */
export interface Account {
  scope: 'session' | 'subject';
  /** Names the session or the subject. */
  id: string;
  /** The current period, which sorts after earlier ones; empty for a session. */
  period: string;
  limit: BudgetAmounts;
}

/** Rolls a transaction back. */
class Reached extends Error {
  readonly report: BudgetReport;

  constructor(report: BudgetReport) {
    super('a budget was reached');
    this.report = report;
  }
}

/** What sessions and subjects with budgets have used: one row for each, of its current period. */
export class Spending {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  /**
   * Counts a model call that is about to begin, unless one of the budgets was reached: then it returns that one, and
   * counts nothing. A retry is counted in any case.
   */
  async begin(accounts: readonly Account[], { isRetry = false } = {}): Promise<BudgetReport | undefined> {
    if (accounts.length === 0) return undefined;
    try {
      await this.#db.transaction().execute(async (db) => {
        for (const account of accounts) {
          const row = await lock(db, account);
          const report = reportOf(account, row);
          if (!isRetry && reachedKinds(report.limit, report.spent).length > 0) throw new Reached(report);
          await db
            .updateTable('spending')
            .set({ steps: row.steps + 1 })
            .where('key', '=', row.key)
            .execute();
        }
      });
    } catch (error) {
      if (error instanceof Reached) return error.report;
      throw error;
    }
    return undefined;
  }

  /** Adds what a model call has used that was counted. One that began in an earlier period does not count in this one. */
  async settle(accounts: readonly Account[], { tokens, usd }: { tokens: number; usd: number }): Promise<void> {
    for (const account of accounts) {
      await this.#db
        .updateTable('spending')
        .set((eb) => ({ tokens: eb('tokens', '+', tokens), usd: eb('usd', '+', usd) }))
        .where('key', '=', keyOf(account))
        .where('period', '=', account.period)
        .execute();
    }
  }

  /** Raises the limits for the rest of the period. */
  async raise(account: Account, given: BudgetAmounts): Promise<BudgetReport> {
    return this.#db.transaction().execute(async (db) => {
      const row = await lock(db, account);
      const changed = { ...row, raised: JSON.stringify({ ...given, ...raised(raisedOf(row), given) }) };
      await db.updateTable('spending').set(changed).where('key', '=', row.key).execute();
      return reportOf(account, changed);
    });
  }

  /** What was used in the period, and its limits. */
  async report(account: Account): Promise<BudgetReport> {
    const row = await this.#db.selectFrom('spending').selectAll().where('key', '=', keyOf(account)).executeTakeFirst();
    return reportOf(account, row && row.period >= account.period ? row : emptyRow(account));
  }
}

/** The row of an account, in its current period. No other process changes it before the transaction ends. */
async function lock(db: Transaction<Tables>, account: Account): Promise<SpendingRow> {
  const empty = emptyRow(account);
  const { key, period } = empty;
  // Locks the row also if it exists: an insert that did nothing would not.
  const row = await db
    .insertInto('spending')
    .values(empty)
    .onConflict((conflict) => conflict.column('key').doUpdateSet({ key }))
    .returningAll()
    .executeTakeFirstOrThrow();
  // The clocks of processes differ: one that is late counts in the period that has begun.
  if (row.period >= period) return row;
  await db.updateTable('spending').set(empty).where('key', '=', key).execute();
  return empty;
}

function emptyRow(account: Account): SpendingRow {
  return { key: keyOf(account), period: account.period, tokens: 0, usd: 0, steps: 0, raised: '{}' };
}

function reportOf({ scope, limit }: Account, row: SpendingRow): BudgetReport {
  const { tokens, usd, steps } = row;
  return { scope, limit: raised(limit, raisedOf(row)), spent: { tokens, usd, steps } };
}

function raisedOf({ raised: json }: SpendingRow): BudgetAmounts {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `raise`
  return JSON.parse(json) as BudgetAmounts;
}

function keyOf({ scope, id }: Pick<Account, 'scope' | 'id'>): string {
  return `${scope}/${id}`;
}

/** Forgets what a deleted session has used, in the transaction of its removal. */
export async function forgetSpending(db: Transaction<Tables>, sessionId: string): Promise<void> {
  const key = keyOf({ scope: 'session', id: sessionId });
  await db.deleteFrom('spending').where('key', '=', key).execute();
}
