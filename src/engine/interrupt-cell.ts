import type { SessionRow } from '../catalog/schema.ts';
import type { Caller } from '../core/subject.ts';
import type { InterruptCommand } from '../core/turn-command.ts';
import { executeCommand } from './command-turn.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import { newId } from './new-id.ts';

interface Interrupt {
  session: SessionRow;
  caller: Caller;
  /** The thread whose model has written the code. */
  threadId: string;
}

/** Whether code of a thread runs, or waits, in a running turn of the session. */
export async function runsCode(engine: Engine, session: SessionRow, threadId: string): Promise<boolean> {
  const last = await engine.turnIndex.confirmedLast(session.id);
  if (!last) return false;
  const { actions, done } = await engine.logs.currentRun(last.id);
  return !done && actions?.runsCode(threadId) === true;
}

/**
 * Interrupts the code of a thread that runs or waits in a running turn, and returns once the turn has recorded it.
 * `waiting`: the turn has ended, and left the code to the next one; `none`: no code of the thread runs or waits.
 */
export async function interruptCell(
  engine: Engine,
  { session, caller, threadId }: Interrupt,
): Promise<'interrupted' | 'waiting' | 'none'> {
  const last = await engine.turnIndex.confirmedLast(session.id);
  if (!last) return 'none';
  const command: InterruptCommand = { type: 'interrupt', id: newId('req'), subject: caller.subject, threadId };
  const { actions, done } = await engine.logs.currentRun(last.id);
  if (actions && !done) {
    try {
      if (!actions.runsCode(threadId)) return 'none';
      if (await executeCommand(engine, last.id, command)) return 'interrupted';
    } catch (error) {
      if (error instanceof EngineError && error.code === 'nothing_running') return 'none';
      throw error;
    }
  }
  const left = (await engine.logs.status(last.id))?.threads ?? [];
  return left.some(({ code, parent }) => code && parent.threadId === threadId) ? 'waiting' : 'none';
}
