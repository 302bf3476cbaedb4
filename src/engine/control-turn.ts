import { mayOnServer } from '../auth/rights.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { isReached, type BudgetAmounts } from '../core/budget.ts';
import type { TurnStart } from '../core/history.ts';
import type { Caller } from '../core/subject.ts';
import type { TurnActions } from '../core/turn-actions.ts';
import { budgetExceeded } from '../core/turn-budget.ts';
import type { ForceCommand, PauseCommand } from '../core/turn-command.ts';
import { commandTurn, errorOf } from './command-turn.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import { newId } from './new-id.ts';

interface Control {
  /** From `authorizeSession`: the caller may cancel its turns. */
  session: SessionRow;
  caller: Caller;
  type: (PauseCommand | ForceCommand)['type'];
  /** Raises the budget of a turn that is resumed. */
  budget?: BudgetAmounts;
}

/**
 * Pauses or resumes the running turn of a session, or has it answer, and returns once the turn has recorded it. A
 * repetition changes nothing, and adds nothing to the turn's history.
 * @throws EngineError `nothing_running`; `budget_exceeded` if the turn stays paused for its budget
 */
export async function controlTurn(engine: Engine, { session, caller, type, budget }: Control): Promise<void> {
  const last = await engine.turnIndex.confirmedLast(session.id);
  if (!last) throw nothingRunning();
  const { actions, start, done } = await engine.logs.currentRun(last.id);
  if (!actions || !start || done) throw nothingRunning();
  const raise = type === 'resume' ? await raiseShared(engine, { start, actions, caller, budget }) : {};
  const command: PauseCommand | ForceCommand = { type, id: newId('req'), subject: caller.subject, ...raise };
  if (actions.isRepetition(command)) return;
  if (!(await commandTurn(engine, last.id, command))) throw nothingRunning();
}

interface Raise {
  start: TurnStart;
  actions: TurnActions;
  caller: Caller;
  budget: BudgetAmounts | undefined;
}

/**
 * Raises the budget that the turn shares with others: the one for which it is paused or, in advance, that of its session.
 * Before the turn is told, so that a crash in between loses nothing. Returns what the turn is told.
 */
async function raiseShared(
  { budgets, catalog: { spending } }: Engine,
  { start, actions, caller, budget }: Raise,
): Promise<Pick<PauseCommand, 'budget' | 'shared'>> {
  const { sessionId, owner, budget: own } = start;
  const { shared } = actions.budget;
  const given = budget ? { budget } : {};
  const scope = shared?.scope ?? own?.scope ?? 'turn';
  if (scope === 'turn' || (!shared && !budget)) return given;
  const account = budgets.account(scope, { sessionId, owner, sessionLimit: own?.limit });
  if (shared) {
    const now = await spending.report(account);
    // It was renewed, or another turn has raised it: what is given is for the turn's own budget.
    if (!isReached(now)) return { ...given, shared: now };
  }
  if (scope === 'subject' && budget && !mayOnServer(caller, 'raiseBudgets')) {
    throw new EngineError(
      'forbidden',
      'only an admin may raise the budget of a subject; it is renewed in its next period',
    );
  }
  const report = budget ? await spending.raise(account, budget) : await spending.report(account);
  if (!shared) return given;
  if (isReached(report)) throw errorOf(budgetExceeded(report));
  return { shared: report };
}

function nothingRunning(): EngineError {
  return new EngineError('nothing_running', 'the session has no running turn');
}
