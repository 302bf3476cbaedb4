import { CancellationScope, condition, setHandler, workflowInfo } from '@temporalio/workflow';
import type { TurnResult, TurnStart } from '../src/core/history.ts';
import type { CancelReason } from '../src/core/records.ts';
import { afterQueue, type BeginTurn } from '../src/core/turn-queue.ts';
import { beginTurn, cancelTurn } from './messages.ts';
import { continueTurn } from './next-run.ts';

/**
 * The run of a turn that waits in the queue of its session. It continues as new as the run that an unqueued turn begins
 * with, so its log, its time limit and its readers begin there. A turn that is cancelled in the queue has no other run.
 */
export async function untilBegun(waiting: TurnStart): Promise<TurnResult> {
  let begin: BeginTurn | undefined;
  let cancelled: CancelReason | undefined;
  setHandler(beginTurn, (given) => {
    begin ??= given;
  });
  setHandler(cancelTurn, (reason) => {
    cancelled ??= reason;
  });
  CancellationScope.current().cancelRequested.catch(() => {
    cancelled ??= 'abandoned';
  });
  await CancellationScope.nonCancellable(() => condition(() => begin !== undefined || cancelled !== undefined));
  const at = new Date().toISOString();
  const after = afterQueue(waiting, { begin, cancelled, at, queuedRunId: workflowInfo().runId });
  return 'next' in after ? continueTurn(after.next) : after.end;
}
