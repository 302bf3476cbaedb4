import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Account, Spending } from '../catalog/spending.ts';
import type { Config } from '../config.ts';
import { reachedKinds, type BudgetAmounts, type BudgetReport } from '../core/budget.ts';
import type { ToolScope } from '../core/history.ts';
import type { Usage } from '../core/records.ts';
import { backoffMs } from '../lib/backoff.ts';
import type { ModelChunk, ModelRequest } from '../models/provider.ts';
import type { ModelTarget } from '../models/providers.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { budgetOf } from '../spec/budget-spec.ts';
import { isUnavailable } from './unavailable.ts';

/** A model call was not made, because a budget that its turn shares with others was reached. */
export class BudgetReached extends Error {
  static {
    this.prototype.name = 'BudgetReached';
  }

  readonly report: BudgetReport;

  constructor(report: BudgetReport) {
    super(`the budget of the ${report.scope} was reached`);
    this.report = report;
  }
}

/** The scope of a model call, with the budget of its session, if it has one. */
type CallScope = ToolScope & { sessionLimit?: BudgetAmounts | undefined };

/** A retry is made although a budget was reached: its message has the usage of the attempts before it. */
type MeteredCall = CallScope & { isRetry?: (() => boolean) | undefined };

interface SharedBudgetsOptions {
  catalog: { spending: Spending };
  config: Pick<Config, 'subjectBudget'>;
  log: Logger;
}

/** The limits of the session of an agent's turns, if it has any. */
export function sessionLimitOf({ config }: AgentSpec): BudgetAmounts | undefined {
  const budget = budgetOf(config?.budget);
  return budget?.scope === 'session' ? budget.limit : undefined;
}

const [FIRST_WAIT_MS, MAX_WAIT_MS] = [200, 5_000];
const MAX_SETTLE_ATTEMPTS = 10;

/**
 * The budgets that turns share: those of sessions and of subjects. A model call, also a speculative one, is counted
 * before it is made, and what it has used when its model has reported it. Calls of turns that run at once do not know
 * what the others are about to report, so tokens and costs exceed a limit by the calls in progress at most.
 */
export class SharedBudgets {
  readonly #options: SharedBudgetsOptions;

  constructor(options: SharedBudgetsOptions) {
    this.#options = options;
  }

  account(scope: Account['scope'], { sessionId, owner, sessionLimit = {} }: CallScope): Account {
    const { subjectBudget } = this.#options.config;
    if (scope === 'session') return { scope, id: sessionId, period: '', limit: sessionLimit };
    const { period: kind = 'day', limit = {} } = subjectBudget ?? {};
    // Days and months are counted apart: the setting may change.
    const id = `${kind}/${owner.subjectId}`;
    return { scope, id, period: new Date().toISOString().slice(0, kind === 'month' ? 7 : 10), limit };
  }

  /** Raises a budget, if limits are given. Returns it, as it is after that. */
  raise(account: Account, given: BudgetAmounts | undefined): Promise<BudgetReport> {
    const { spending } = this.#options.catalog;
    return given ? spending.raise(account, given) : spending.report(account);
  }

  /** Whether a model call would not be made now. */
  async isReached(scope: CallScope): Promise<boolean> {
    for (const account of this.#accounts(scope)) {
      const { limit, spent } = await this.#options.catalog.spending.report(account);
      if (reachedKinds(limit, spent).length > 0) return true;
    }
    return false;
  }

  /** The provider of a model, whose calls count. Their streams throw `BudgetReached` before they are made. */
  metered({ provider, cost }: ModelTarget, call: MeteredCall): Pick<ModelTarget['provider'], 'stream'> {
    const accounts = this.#accounts(call);
    if (accounts.length === 0) return provider;
    const begin = () => this.#begin(accounts, call);
    const settle = (usage: Usage, signal: AbortSignal) => this.#settle(accounts, { usage, cost, signal });
    return {
      async *stream(request: ModelRequest, signal: AbortSignal): AsyncGenerator<ModelChunk> {
        await begin();
        let usage: Usage | undefined;
        try {
          for await (const chunk of provider.stream(request, signal)) {
            usage = chunk.usage ?? usage;
            yield chunk;
          }
        } finally {
          if (usage) await settle(usage, signal);
        }
      },
    };
  }

  #accounts(scope: CallScope): Account[] {
    const { sessionLimit } = scope;
    return [
      ...(sessionLimit ? [this.account('session', scope)] : []),
      ...(this.#options.config.subjectBudget ? [this.account('subject', scope)] : []),
    ];
  }

  async #begin(accounts: Account[], { isRetry = () => false }: MeteredCall): Promise<void> {
    const report = await this.#options.catalog.spending.begin(accounts, { isRetry: isRetry() });
    if (report) throw new BudgetReached(report);
  }

  /** The answer is complete and paid for, so an unavailable catalog is retried, and does not fail it. */
  async #settle(
    accounts: Account[],
    { usage, cost, signal }: { usage: Usage; cost: ModelTarget['cost']; signal: AbortSignal },
  ): Promise<void> {
    const { catalog, log } = this.#options;
    const used = { tokens: usage.inputTokens + usage.outputTokens, usd: cost(usage) ?? 0 };
    for (let attempt = 1; ; attempt++) {
      try {
        return await catalog.spending.settle(accounts, used);
      } catch (error) {
        if (!isUnavailable(error) || signal.aborted || attempt === MAX_SETTLE_ATTEMPTS) {
          return log.error({ err: error, ...used }, 'what a model call has used was not added to its budgets');
        }
        await sleep(backoffMs(attempt - 1, { first: FIRST_WAIT_MS, max: MAX_WAIT_MS }));
      }
    }
  }
}
