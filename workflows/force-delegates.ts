import { CancellationScope, condition, proxyActivities } from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';
import type { Subject } from '../src/core/subject.ts';
import type { TurnActions } from '../src/core/turn-actions.ts';
import type { DelegatedCall } from '../src/core/turn-delegations.ts';
import type { TurnScope } from './turn-scope.ts';

/** How long other agents may take to answer when the turn is to answer. */
const GRACE = '30 seconds';

/** A few quick calls to Temporal and the catalog, retried for ever, since the turn waits for what they cause. */
const { forceDelegate, stopDelegate } = proxyActivities<Pick<Activities, 'forceDelegate' | 'stopDelegate'>>({
  startToCloseTimeout: '30 seconds',
  retry: { initialInterval: '200 milliseconds', maximumInterval: '10 seconds' },
});

interface ForceDelegatesOptions {
  actions: Pick<TurnActions, 'isForced' | 'delegated'>;
  turn: Pick<TurnScope, 'run'>;
  subject: Subject;
}

/**
 * Once the turn is to answer, the agents to which it has delegated calls are to answer too. One that has not after the
 * grace period is stopped: what it has written is its answer. The next run of a turn that continues as new begins again.
 */
export function forceDelegates({ actions, turn, subject }: ForceDelegatesOptions): void {
  const forced = new Set<string>();
  const next = (): DelegatedCall | undefined =>
    actions.isForced ? actions.delegated.find(({ sessionId }) => !forced.has(sessionId)) : undefined;

  async function run(): Promise<never> {
    for (;;) {
      await condition(() => next() !== undefined);
      for (let call = next(); call; call = next()) {
        forced.add(call.sessionId);
        force(call.sessionId).catch(() => undefined);
      }
    }
  }

  async function force(childSessionId: string): Promise<void> {
    forceDelegate({ childSessionId, subject, ...turn.run }).catch(() => undefined);
    const hasAnswered = () => actions.delegated.every(({ sessionId }) => sessionId !== childSessionId);
    if (!(await condition(hasAnswered, GRACE))) await stopDelegate({ childSessionId, ...turn.run });
  }

  void CancellationScope.nonCancellable(run);
}
