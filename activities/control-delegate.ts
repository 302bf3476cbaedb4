import type { ScheduledBy } from '../src/core/history.ts';
import type { Subject } from '../src/core/subject.ts';
import { rejectResetRun } from '../src/temporal/reject-reset-run.ts';
import type { Dependencies } from './dependencies.ts';

interface StopDelegateInput extends ScheduledBy {
  /** The session of the delegate. */
  childSessionId: string;
}

interface ForceDelegateInput extends StopDelegateInput {
  /** The creator of the delegating turn. */
  subject: Subject;
}

/** Forces the turn of a delegate to answer. */
export function createForceDelegate({ delegator }: Pick<Dependencies, 'delegator'>) {
  return async function forceDelegate({ childSessionId, subject, ...run }: ForceDelegateInput): Promise<void> {
    rejectResetRun(run);
    await delegator.force(childSessionId, subject);
  };
}

/** Cancels the turn of a delegate. */
export function createStopDelegate({ delegator }: Pick<Dependencies, 'delegator'>) {
  return async function stopDelegate({ childSessionId, ...run }: StopDelegateInput): Promise<void> {
    rejectResetRun(run);
    await delegator.stop(childSessionId);
  };
}
