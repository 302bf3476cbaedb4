import type { Generated, Kysely, Selectable, Transaction } from 'kysely';
import { isReached, raised, type BudgetAmounts, type BudgetReport } from '../../core/budget.ts';
import type { TurnEnding, LogReader } from '../../catalog/log-reader.ts';
import type { Tables } from '../../catalog/schema.ts';
import { Store } from '../../catalog/store.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The usage of the sessions and subjects with budgets in their current period. */
    spending: {
      /** The scope and the id. */
      key: string;
      /** A day or a month; empty for a session. */
      period: string;
      tokens: number;
      usd: number;
      steps: number;
      /** The working time of turns. */
      worked_ms: number;
      /** JSON: the raised limits of the period. */
      raised: string;
    };
  }
  interface TurnsTable {
    /** The part of the turn's working time that was added to its shared budgets, in milliseconds. */
    counted_ms: Generated<number>;
  }
}

type SpendingRow = Selectable<Tables['spending']>;

/** A budget that several turns share. */
export interface Account {
  scope: 'session' | 'subject';
  /** Names the session or the subject. */
  id: string;
  /** The current period, which sorts after earlier ones; empty for a session. */
  period: string;
  limit: BudgetAmounts;
}

/** A turn, and its working time so far. */
export interface TurnWork {
  turnId: string;
  workedMs: number;
}

/** The number of characters of an ISO-8601 time that name a period of UTC. */
const PERIODS = { day: 10, month: 7 } as const;

/** The account of a subject at a time. Days and months have separate accounts, since the setting may change. */
export function subjectAccount(subjectId: string, kind: keyof typeof PERIODS, at: string): Omit<Account, 'limit'> {
  return { scope: 'subject', id: `${kind}/${subjectId}`, period: at.slice(0, PERIODS[kind]) };
}

/** The usage of sessions and subjects with budgets: one row for each, for its current period. */
export class Spending extends Store {
  /**
   * Counts a model call that is about to begin. If one of the budgets was reached, returns it and counts nothing but
   * the working time of the turn. A retry is counted in any case.
   */
  async begin(
    accounts: readonly Account[],
    turn: TurnWork,
    { isRetry = false } = {},
  ): Promise<BudgetReport | undefined> {
    if (accounts.length === 0) return undefined;
    return this.db.transaction().execute(async (db) => {
      const ms = await takeTime(db, turn);
      const states: { row: SpendingRow; report: BudgetReport }[] = [];
      for (const account of accounts) {
        const before = await lock(db, account);
        const row = { ...before, worked_ms: before.worked_ms + ms };
        states.push({ row, report: reportOf(account, row) });
      }
      const reached = states.find(({ report }) => isReached(report));
      const isMade = isRetry || !reached;
      for (const { row } of states) {
        await db
          .updateTable('spending')
          .set({ worked_ms: row.worked_ms, steps: row.steps + Number(isMade) })
          .where('key', '=', row.key)
          .execute();
      }
      return isMade ? undefined : reached?.report;
    });
  }

  /**
   * Adds the usage of a counted model call, and the working time of its turn. A call that began in an earlier period
   * does not count in the current one.
   */
  async settle(
    accounts: readonly Account[],
    turn: TurnWork,
    { tokens, usd }: { tokens: number; usd: number },
  ): Promise<void> {
    await this.db.transaction().execute(async (db) => {
      const ms = await takeTime(db, turn);
      for (const account of accounts) {
        await adding(db, { key: keyOf(account), period: account.period }, { tokens, usd, worked_ms: ms }).execute();
      }
    });
  }

  /** Subtracts a counted model call that its provider has refused. */
  async takeBack(accounts: readonly Account[]): Promise<void> {
    for (const account of accounts) {
      const row = { key: keyOf(account), period: account.period };
      await adding(this.db, row, { steps: -1 }).where('steps', '>', 0).execute();
    }
  }

  /** Raises the limits for the rest of the period. */
  async raise(account: Account, given: BudgetAmounts): Promise<BudgetReport> {
    return this.db.transaction().execute(async (db) => {
      const row = await lock(db, account);
      const changed = { ...row, raised: JSON.stringify({ ...given, ...raised(raisedOf(row), given) }) };
      await db.updateTable('spending').set(changed).where('key', '=', row.key).execute();
      return reportOf(account, changed);
    });
  }

  /** The usage in the period, and its limits. */
  async report(account: Account): Promise<BudgetReport> {
    const row = await this.db.selectFrom('spending').selectAll().where('key', '=', keyOf(account)).executeTakeFirst();
    return reportOf(account, row && row.period >= account.period ? row : emptyRow(account));
  }
}

/** The row of an account in its current period, locked until the transaction ends. */
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
  // The clocks of processes differ: if this one is slow, it counts in the period that another process has begun.
  if (row.period >= period) return row;
  await db.updateTable('spending').set(empty).where('key', '=', key).execute();
  return empty;
}

/** Adds to a row, unless its period has ended. */
function adding(
  db: Kysely<Tables>,
  { key, period }: Pick<SpendingRow, 'key' | 'period'>,
  amounts: Partial<Pick<SpendingRow, 'tokens' | 'usd' | 'steps' | 'worked_ms'>>,
) {
  const { tokens = 0, usd = 0, steps = 0, worked_ms: ms = 0 } = amounts;
  return db
    .updateTable('spending')
    .set((eb) => ({
      tokens: eb('tokens', '+', tokens),
      usd: eb('usd', '+', usd),
      steps: eb('steps', '+', steps),
      worked_ms: eb('worked_ms', '+', ms),
    }))
    .where('key', '=', key)
    .where('period', '=', period);
}

function emptyRow(account: Account): SpendingRow {
  return { key: keyOf(account), period: account.period, tokens: 0, usd: 0, steps: 0, worked_ms: 0, raised: '{}' };
}

function reportOf({ scope, limit }: Account, row: SpendingRow): BudgetReport {
  const { tokens, usd, steps, worked_ms: workedMs } = row;
  return { scope, limit: raised(limit, raisedOf(row)), spent: { tokens, usd, steps, seconds: workedMs / 1000 } };
}

function raisedOf({ raised: json }: SpendingRow): BudgetAmounts {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `raise`
  return JSON.parse(json) as BudgetAmounts;
}

function keyOf({ scope, id }: Pick<Account, 'scope' | 'id'>): string {
  return `${scope}/${id}`;
}

/**
 * Marks the working time of a turn as counted, before the accounts to which it is added are locked. Returns the part of
 * it that was not counted before.
 */
async function takeTime(db: Transaction<Tables>, { turnId, workedMs }: TurnWork): Promise<number> {
  // Changes nothing, but locks the row.
  const turn = await db
    .updateTable('turns')
    .set((eb) => ({ counted_ms: eb.ref('counted_ms') }))
    .where('id', '=', turnId)
    .returning('counted_ms')
    .executeTakeFirst();
  if (!turn || turn.counted_ms >= workedMs) return 0;
  await db.updateTable('turns').set({ counted_ms: workedMs }).where('id', '=', turnId).execute();
  return workedMs - turn.counted_ms;
}

export const spendingReader: LogReader = {
  turnEnded: addRemainingTime,
  /** Deletes the usage of a deleted session. */
  sessionRemoved: async (db, id) => {
    const key = keyOf({ scope: 'session', id });
    await db.deleteFrom('spending').where('key', '=', key).execute();
  },
};

/** Adds the working time of an ended turn since its last model call to the existing accounts. */
async function addRemainingTime(
  db: Transaction<Tables>,
  { turnId, sessionId, session, at, workedMs }: TurnEnding,
): Promise<void> {
  const { subject_id: subjectId } = session;
  const accounts = [
    { scope: 'session' as const, id: sessionId, period: '' },
    subjectAccount(subjectId, 'day', at),
    subjectAccount(subjectId, 'month', at),
  ];
  const rows = await db
    .selectFrom('spending')
    .select(['key', 'period'])
    .where('key', 'in', accounts.map(keyOf))
    // In the order in which `begin` locks them: the session first.
    .orderBy('key')
    .execute();
  const current = rows.filter((row) => accounts.some((one) => keyOf(one) === row.key && one.period === row.period));
  if (current.length === 0) return;
  const ms = await takeTime(db, { turnId, workedMs });
  for (const row of current) await adding(db, row, { worked_ms: ms }).execute();
}
