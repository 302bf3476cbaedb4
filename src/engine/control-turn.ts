import type { SessionRow } from '../catalog/schema.ts';
import type { BudgetAmounts } from '../core/budget.ts';
import type { Subject } from '../core/subject.ts';
import type { ForceCommand, PauseCommand } from '../core/turn-command.ts';
import { commandTurn } from './command-turn.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import { newId } from './new-id.ts';

interface Control {
  /** From `authorizeSession`: the caller may cancel its turns. */
  session: SessionRow;
  subject: Subject;
  type: (PauseCommand | ForceCommand)['type'];
  /** Raises the budget of a turn that is resumed. */
  budget?: BudgetAmounts;
}

/**
 * Pauses or resumes the running turn of a session, or has it answer, and returns once the turn has recorded it. A repetition changes
 * nothing, and adds nothing to the turn's history.
 * @throws EngineError `nothing_running`; `budget_exceeded` if the turn stays paused for its budget
 */
export async function controlTurn(engine: Engine, { session, subject, type, budget }: Control): Promise<void> {
  const last = await engine.turnIndex.confirmedLast(session.id);
  if (!last) throw nothingRunning();
  const { actions, done } = await engine.logs.currentRun(last.id);
  if (!actions || done) throw nothingRunning();
  const command: PauseCommand | ForceCommand = { type, id: newId('req'), subject, ...(budget && { budget }) };
  if (actions.isRepetition(command)) return;
  if (!(await commandTurn(engine, last.id, command))) throw nothingRunning();
}

function nothingRunning(): EngineError {
  return new EngineError('nothing_running', 'the session has no running turn');
}
