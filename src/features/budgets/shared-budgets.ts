import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { subjectAccount, type Account, type Spending, type TurnWork } from './spending-rows.ts';
import type { ModelCallPart, StreamingProvider } from '../../agents/model-call-part.ts';
import type { Config } from '../../config.ts';
import { isReached, type BudgetAmounts, type BudgetReport } from '../../core/budget.ts';
import type { ToolScope } from '../../core/history.ts';
import { timeOf } from '../../core/ids.ts';
import { NO_USAGE, type Usage } from '../../core/records/usage.ts';
import { backoffMs } from '../../lib/backoff.ts';
import { estimateInput, TOKEN_CHARACTERS } from '../../models/input-breakdown.ts';
import { ModelError } from '../../models/model-error.ts';
import type { ModelChunk, ModelRequest } from '../../models/provider.ts';
import type { ModelTarget } from '../../models/providers.ts';
import { notingSent } from '../../models/sent-request.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { budgetOf } from '../../spec/budget-spec.ts';
import type { SharedBudget } from '../../engine/control-turn.ts';
import { EngineError } from '../../engine/errors.ts';
import { isUnavailable } from '../../engine/unavailable.ts';
import { NamedError } from '../../lib/errors.ts';

/** A model call was not made because a shared budget was reached. */
export class BudgetReached extends NamedError {
  readonly report: BudgetReport;

  constructor(report: BudgetReport) {
    super(`the budget of the ${report.scope} was reached`);
    this.report = report;
  }
}

/** A model call was not made because the shared budgets cannot be read. */
export class BudgetsUnavailable extends EngineError {
  constructor(options: ErrorOptions) {
    super('unavailable', 'the budgets of the session or its subject cannot be read: try again', options);
  }
}

/** The scope of a model call, with the budget of its session, if any. */
type CallScope = ToolScope & { sessionLimit?: BudgetAmounts | undefined };

interface MeteredCall extends CallScope {
  turnId: string;
  /** The time for which the turn was idle before the call. */
  idleMs: number;
  /** A retry is made even if a budget was reached: its message includes the usage of the attempts before it. */
  isRetry?: (() => boolean) | undefined;
}

interface MeteredModel extends Pick<ModelTarget, 'cost'> {
  provider: StreamingProvider;
}

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

/** Calls models within the budgets that their turns share. */
export function budgetsPart(budgets: Pick<SharedBudgets, 'metered'>): ModelCallPart {
  return {
    provider: (provider, target, { spec, call }) => {
      const { turnId, sessionId, owner, subAgent, idleMs = 0, isRetry } = call;
      // A speculative call begins before the turn's start is known.
      const sessionLimit = subAgent ? call.sessionLimit : sessionLimitOf(spec);
      return budgets.metered({ ...target, provider }, { turnId, sessionId, owner, sessionLimit, idleMs, isRetry });
    },
  };
}

const [FIRST_WAIT_MS, MAX_WAIT_MS] = [200, 5_000];
const MAX_SETTLE_ATTEMPTS = 10;

/**
 * The budgets that turns share: those of sessions and of subjects. A model call, also a speculative one, is counted
 * before it is made, and its usage once its model has reported it; the working time of its turn is added when the call
 * begins and ends. The usage of concurrent calls is unknown until they end, so tokens, costs and seconds exceed a limit
 * by the calls in progress at most.
 */
export class SharedBudgets {
  readonly #options: SharedBudgetsOptions;

  constructor(options: SharedBudgetsOptions) {
    this.#options = options;
  }

  account(scope: Account['scope'], { sessionId, owner, sessionLimit = {} }: CallScope): Account {
    if (scope === 'session') return { scope, id: sessionId, period: '', limit: sessionLimit };
    return this.accountOf(owner.subjectId);
  }

  /** A budget in its current period. */
  shared(scope: Account['scope'], call: CallScope): SharedBudget {
    const { spending } = this.#options.catalog;
    const account = this.account(scope, call);
    return { report: () => spending.report(account), raise: (given) => spending.raise(account, given) };
  }

  /** The account of a subject in the current period. */
  accountOf(subjectId: string): Account {
    const { subjectBudget } = this.#options.config;
    const { period: kind = 'day', limit = {} } = subjectBudget ?? {};
    return { ...subjectAccount(subjectId, kind, new Date().toISOString()), limit };
  }

  /** Whether a model call would be refused now. */
  async isReached(scope: CallScope): Promise<boolean> {
    for (const account of this.#accounts(scope)) {
      if (isReached(await this.#options.catalog.spending.report(account))) return true;
    }
    return false;
  }

  /** A provider whose calls are counted. Its streams throw `BudgetReached` before a call that is not allowed. */
  metered({ provider, cost }: MeteredModel, call: MeteredCall): StreamingProvider {
    const accounts = this.#accounts(call);
    if (accounts.length === 0) return provider;
    const begin = () => this.#begin(accounts, call);
    // If the catalog is unavailable, the call remains counted as a step.
    const takeBack = () => this.#options.catalog.spending.takeBack(accounts).catch(() => undefined);
    const settle = (usage: Usage, signal: AbortSignal) => this.#settle(accounts, call, { usage, cost, signal });
    return {
      async *stream(request: ModelRequest, signal: AbortSignal): AsyncGenerator<ModelChunk> {
        await begin();
        let usage: Usage | undefined;
        let characters = 0;
        let isBilled = false;
        try {
          for await (const chunk of notingSent(provider.stream(request, signal), () => (isBilled = true))) {
            usage = chunk.usage ?? usage;
            characters += charactersOf(chunk);
            yield chunk;
          }
        } catch (error) {
          if (error instanceof ModelError && error.isRefusal && characters === 0) {
            isBilled = false;
            await takeBack();
          }
          throw error;
        } finally {
          // An interrupted message is billed, too, and would otherwise evade the budget. Also before its first
          // character, since a model that thinks sends nothing for long.
          if (!usage && (isBilled || characters > 0)) usage = estimate(request, characters);
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

  async #begin(accounts: Account[], call: MeteredCall): Promise<void> {
    const isRetry = call.isRetry?.() ?? false;
    const { spending } = this.#options.catalog;
    const report = await spending.begin(accounts, workOf(call), { isRetry }).catch((error: unknown) => {
      throw isUnavailable(error) ? new BudgetsUnavailable({ cause: error }) : error;
    });
    if (report) throw new BudgetReached(report);
  }

  /** Adds the usage of a call. The call is already billed: an unavailable catalog is retried and does not fail it. */
  async #settle(
    accounts: Account[],
    call: MeteredCall,
    { usage, cost, signal }: { usage: Usage; cost: ModelTarget['cost']; signal: AbortSignal },
  ): Promise<void> {
    const { catalog, log } = this.#options;
    const used = { tokens: usage.inputTokens + usage.outputTokens, usd: cost(usage) ?? 0 };
    for (let attempt = 1; ; attempt++) {
      try {
        return await catalog.spending.settle(accounts, workOf(call), used);
      } catch (error) {
        if (!isUnavailable(error) || signal.aborted || attempt === MAX_SETTLE_ATTEMPTS) {
          return log.error({ err: error, ...used }, 'what a model call has used was not added to its budgets');
        }
        await sleep(backoffMs(attempt - 1, { first: FIRST_WAIT_MS, max: MAX_WAIT_MS }));
      }
    }
  }
}

function charactersOf({ content = '', refusal = '', reasoning = '', toolCalls = [] }: ModelChunk): number {
  const written = toolCalls.reduce((sum, call) => sum + (call.arguments?.length ?? 0), 0);
  return content.length + refusal.length + reasoning.length + written;
}

/** The estimated usage of a message that was interrupted before its provider reported the usage. */
function estimate(request: ModelRequest, characters: number): Usage {
  const outputTokens = Math.ceil(characters / TOKEN_CHARACTERS);
  return { ...NO_USAGE, inputTokens: estimateInput(request), outputTokens };
}

/** The working time of a turn: its age, by its id, without the time for which it was idle. */
function workOf({ turnId, idleMs }: MeteredCall): TurnWork {
  return { turnId, workedMs: Date.now() - timeOf(turnId) - idleMs };
}
