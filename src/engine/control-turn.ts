import { mayOnServer } from '../auth/rights.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { isReached, type BudgetAmounts, type BudgetReport } from '../core/budget.ts';
import type { ToolScope, TurnStart } from '../core/history.ts';
import type { Caller } from '../core/subject.ts';
import type { TurnActions } from '../core/turn-actions.ts';
import { budgetExceeded } from '../core/turn-budget.ts';
import type { ForceCommand, PauseCommand } from '../core/turn-command.ts';
import { errorOf, executeCommand } from './command-turn.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import { newId } from './new-id.ts';

/** A budget that turns share, in its current period. */
export interface SharedBudget {
  /** What was used, and the limits. */
  report: () => Promise<BudgetReport>;
  /** Raises the limits for the rest of the period. */
  raise: (given: BudgetAmounts) => Promise<BudgetReport>;
}

/** The budget of a session, or of the subject that owns it. */
export type SharedBudgetOf = (
  scope: Exclude<BudgetReport['scope'], 'turn'>,
  session: ToolScope & { sessionLimit: BudgetAmounts | undefined },
) => SharedBudget;

interface Control {
  /** From `authorizeSession`: the caller may cancel its turns. */
  session: SessionRow;
  caller: Caller;
  type: (PauseCommand | ForceCommand)['type'];
  /** Raises the budget of a turn that is resumed. */
  budget?: BudgetAmounts;
}

/**
 * Pauses or resumes the running turn of a session, or forces it to answer, and returns once the turn has recorded it. A
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
  if (!(await executeCommand(engine, last.id, command))) throw nothingRunning();
}

interface Raise {
  start: TurnStart;
  actions: TurnActions;
  caller: Caller;
  budget: BudgetAmounts | undefined;
}

/**
 * Raises the budget that the turn shares with others: the one for which it is paused or, in advance, that of its
 * session. Called before the command is sent, so that a crash in between loses nothing. Returns fields of the command.
 */
async function raiseShared(
  { budgets }: Engine,
  { start, actions, caller, budget }: Raise,
): Promise<Pick<PauseCommand, 'budget' | 'shared'>> {
  const { sessionId, owner, budget: own } = start;
  const { shared } = actions.budget;
  const given = budget ? { budget } : {};
  const scope = shared?.scope ?? own?.scope ?? 'turn';
  if (scope === 'turn' || (!shared && !budget)) return given;
  const sharedBudget = budgets.shared(scope, { sessionId, owner, sessionLimit: own?.limit });
  if (shared) {
    const now = await sharedBudget.report();
    // It was renewed, or another turn has raised it: `budget` is for the turn's own budget.
    if (!isReached(now)) return { ...given, shared: now };
  }
  if (scope === 'subject' && budget && !mayOnServer(caller, 'raiseBudgets')) {
    throw new EngineError(
      'forbidden',
      'only an admin may raise the budget of a subject; it is renewed in its next period',
    );
  }
  const report = budget ? await sharedBudget.raise(budget) : await sharedBudget.report();
  if (!shared) return given;
  if (isReached(report)) throw errorOf(budgetExceeded(report));
  return { shared: report };
}

function nothingRunning(): EngineError {
  return new EngineError('nothing_running', 'the session has no running turn');
}
