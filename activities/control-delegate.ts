import type { Subject } from '../src/core/subject.ts';
import type { Dependencies } from './dependencies.ts';

interface ForceDelegateInput {
  /** The session of the delegate. */
  childSessionId: string;
  /** For whom the turn works that has delegated. */
  subject: Subject;
}

/** Has the turn of a delegate answer. */
export function createForceDelegate({ delegator }: Pick<Dependencies, 'delegator'>) {
  return function forceDelegate({ childSessionId, subject }: ForceDelegateInput): Promise<void> {
    return delegator.force(childSessionId, subject);
  };
}

/** Cancels the turn of a delegate. */
export function createStopDelegate({ delegator }: Pick<Dependencies, 'delegator'>) {
  return function stopDelegate({ childSessionId }: Pick<ForceDelegateInput, 'childSessionId'>): Promise<void> {
    return delegator.stop(childSessionId);
  };
}
