import {
  CancellationScope,
  ContinueAsNew,
  continueAsNew,
  proxyActivities,
  proxySinks,
  setHandler,
  workflowInfo,
  type Sinks,
} from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';
import type { TurnContinuation, TurnResult, TurnStart } from '../src/core/history.ts';
import { countStartRecords } from '../src/core/projection.ts';
import { NO_USAGE, ROOT_THREAD, type CancelReason } from '../src/core/records.ts';
import { errorMessage } from './errors.ts';
import { cancelTurn } from './messages.ts';
import { Thread, type Progress, type ThreadResult } from './thread.ts';

/**
 * Archives the previous run's part of the log after a continue-as-new, before Temporal deletes that run. Its end is
 * archived by the session's worker.
 */
const { archiveTurn } = proxyActivities<Pick<Activities, 'archiveTurn'>>({
  startToCloseTimeout: '10 minutes',
  heartbeatTimeout: '30 seconds',
  retry: { maximumInterval: '1 minute' },
});

/** Sinks of the worker; calls to them are not part of the history. */
export interface CancelSinks extends Sinks {
  /** The turn cancels its activities, which hear of it with their next heartbeat. */
  cancels: { cancelling(turnId: string): void };
}

const { cancels } = proxySinks<CancelSinks>();

/** A turn: one request/response cycle of a session. Its history is its log. */
export async function turn(start: TurnStart): Promise<TurnResult> {
  const { carry, turnId, sessionId } = start;
  const { runId: previousRunId, originalExecutionRunId, startTime } = workflowInfo();
  const deadline = carry?.deadline ?? startTime.getTime() + start.limits.seconds * 1000;

  let reason: CancelReason | undefined;
  const steps = new CancellationScope();
  const stop = (why: CancelReason) => {
    if (!reason) cancels.cancelling(turnId);
    reason ??= why;
    steps.cancel();
  };
  setHandler(cancelTurn, stop);
  CancellationScope.current().cancelRequested.catch(() => stop('abandoned'));
  if (carry) archiveTurn({ turnId, sessionId, through: carry.ordinal }).catch(() => undefined);

  let end: ThreadResult;
  try {
    const progress: Progress = carry ?? { ordinal: countStartRecords(start), step: 0, usage: NO_USAGE };
    const stopped = () => {
      if (Date.now() >= deadline) stop('server-execution-timeout');
      return reason !== undefined;
    };
    const thread = new Thread({ start, threadId: ROOT_THREAD, deadline, progress, stopped });
    end = await steps.run(() => thread.run());
    if (end.status === 'continue' && !reason) {
      const isReset = carry?.isReset ?? previousRunId !== originalExecutionRunId;
      const { next } = end;
      const carried: TurnContinuation = { ...progress, next, previousRunId, deadline, ...(isReset && { isReset }) };
      return await continueAsNew<typeof turn>({ ...start, carry: carried });
    }
  } catch (error) {
    if (error instanceof ContinueAsNew) throw error;
    // Rethrown, it would fail the workflow task for ever.
    end = { status: 'error', message: errorMessage(error) };
  }
  return resultOf(end, reason);
}

/** A cancelled turn ends as cancelled even if its last step had a result, unless the turn was done before. */
function resultOf(end: ThreadResult, reason: CancelReason | undefined): TurnResult {
  if (end.status === 'done') return end;
  if (reason) return { status: 'cancelled', reason };
  return end.status === 'error' ? end : { status: 'error', message: 'The turn stopped without a reason.' };
}
