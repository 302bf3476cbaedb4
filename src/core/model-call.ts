import type { BudgetAmounts } from './budget.ts';
import type { CallModelInput, ToolScope, TurnStart } from './history.ts';
import { pick } from './pick.ts';
import type { SubAgent } from './records/threads.ts';
import { ownerOfThread } from './work-owner.ts';

/** The constants of all model calls of a thread in one Temporal run of its turn. */
export interface CallConstants extends ToolScope, Pick<TurnStart, 'previousTurnId' | 'sequence' | 'isRun' | 'agents'> {
  /** The spec of the thread's agent. */
  specHash: string;
  /** The budget of the session, if it has one. */
  sessionLimit?: BudgetAmounts;
  /** Set for the thread of a sub-agent. */
  subAgent?: SubAgent;
}

/**
 * A model call with all that it depends on. Its input has only what changes from call to call, because each input stays
 * in the turn's history; the constants are in the start of the turn and in the record that begins a thread.
 */
export type ModelCall = CallModelInput & CallConstants;

/** The constants of a sub-agent's thread, or of the root agent's thread if there is no `subAgent`. */
export function constantsOf(start: TurnStart, subAgent?: SubAgent): CallConstants {
  const { owner, specHash, budget } = start;
  return {
    ...pick(start, 'sessionId', 'previousTurnId', 'sequence', 'isRun', 'agents'),
    owner: subAgent ? ownerOfThread(owner, subAgent) : owner,
    specHash: subAgent?.specHash ?? specHash,
    ...(budget?.scope === 'session' && { sessionLimit: budget.limit }),
    ...(subAgent && { subAgent }),
  };
}
