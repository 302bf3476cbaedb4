import {
  CancellationScope,
  ContinueAsNew,
  proxySinks,
  setHandler,
  workflowInfo,
  type Sinks,
} from '@temporalio/workflow';
import type { TurnContinuation, TurnResult, TurnStart } from '../src/core/history.ts';
import { TurnProjection } from '../src/core/projection.ts';
import { ROOT_THREAD, type CancelReason } from '../src/core/records.ts';
import { progressOf } from '../src/core/thread-state.ts';
import { turnResult, waitingOf, type ThreadResult } from '../src/core/turn-result.ts';
import { errorMessage } from './errors.ts';
import { forceDelegates } from './force-delegates.ts';
import { archiveTurn, indexActions } from './index-activities.ts';
import { cancelTurn } from './messages.ts';
import { continueTurn } from './next-run.ts';
import { untilBegun } from './queued-turn.ts';
import { Thread } from './thread.ts';
import { TurnCommands } from './turn-commands.ts';
import { TurnScope } from './turn-scope.ts';

/** Sinks of the worker; calls to them are not part of the history. */
export interface TurnSinks extends Sinks {
  turns: {
    /** The turn cancels its activities, which hear of it with their next heartbeat. */
    cancelling(turnId: string): void;
    /** The log grows without the result of an activity: commands were recorded, or the turn ends. */
    growing(turnId: string): void;
  };
}

const { turns } = proxySinks<TurnSinks>();

/** The clocks of workers and of Temporal differ less than this. */
const MAX_CLOCK_DIFFERENCE_MS = 60_000;

/** A turn: one request/response cycle of a session. Its history is its log. */
export async function turn(start: TurnStart): Promise<TurnResult> {
  if (start.queued) return untilBegun(start);
  const { carry, turnId, sessionId, begun } = start;
  const { runId: previousRunId, startTime } = workflowInfo();
  const deadline = carry?.deadline ?? startTime.getTime() + start.limits.seconds * 1000;
  const log = new TurnProjection();
  log.started(start);
  const { actions } = log;
  if (!actions) throw new Error('a run that has started has actions');
  const deadlineNow = () => deadline + actions.waitedMs;

  let reason: CancelReason | undefined;
  const steps = new CancellationScope();
  const stop = (why: CancelReason) => {
    if (!reason) turns.cancelling(turnId);
    reason ??= why;
    steps.cancel();
  };
  setHandler(cancelTurn, (why) => {
    // The worker that runs an activity does not know that the turn was paused since.
    const isOverdue = !actions.isPaused && Date.now() + MAX_CLOCK_DIFFERENCE_MS >= deadlineNow();
    if (why !== 'server-execution-timeout') commands.cancelled();
    else if (!isOverdue) return;
    stop(why);
  });
  const stopped = () => {
    if (!actions.isPaused && Date.now() >= deadlineNow()) stop('server-execution-timeout');
    if (actions.failure !== undefined) steps.cancel();
    return reason !== undefined || actions.failure !== undefined || actions.budget.failure !== undefined;
  };
  const scope = new TurnScope({
    start,
    deadline: deadlineNow,
    log,
    actions,
    stopped,
    commandsDue: () => commands.areDue,
    onSignIn: () => commands.index(),
  });
  const commands = new TurnCommands({ start, scope, onGrowth: () => turns.growing(turnId) });
  forceDelegates({ actions, turn: scope, subject: start.createdBy });
  CancellationScope.current().cancelRequested.catch(() => stop('abandoned'));
  if (begun?.cancelled) stop(begun.cancelled);
  // No request is waiting to move it from the queue to the turns in the index.
  if (begun && !carry) indexActions({ turnId, sessionId, through: 0 }).catch(() => undefined);
  if (carry) archiveTurn({ turnId, sessionId, through: carry.ordinal }).catch(() => undefined);

  let end: ThreadResult;
  try {
    const thread = new Thread(scope);
    end = await steps.run(() => thread.run(scope.resumed(ROOT_THREAD)));
    await commands.settled();
    if (actions.failure !== undefined && !reason) end = { status: 'error', ...actions.failure };
    const message = actions.budget.failure;
    if (message !== undefined && !reason && end.status === 'stopped') {
      end = { status: 'error', message, code: 'budget_exceeded' };
    }
    if (end.status === 'continue' && !reason) {
      const { steps: step, ...progress } = progressOf(thread.state);
      const next: TurnContinuation = {
        ...scope.progress,
        ...waitingOf(end),
        step,
        ...progress,
        ...(thread.state.isGiven && { isGiven: true }),
        next: thread.next,
        previousRunId,
        deadline,
        actions: actions.state,
      };
      return await continueTurn({ ...start, carry: next });
    }
  } catch (error) {
    if (error instanceof ContinueAsNew) throw error;
    // Rethrown, it would fail the workflow task for ever.
    end = { status: 'error', message: errorMessage(error) };
  }
  turns.growing(turnId);
  return turnResult(end, reason, actions.steering.authors);
}
