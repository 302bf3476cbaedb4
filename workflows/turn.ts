import {
  CancellationScope,
  condition,
  continueAsNew,
  ContinueAsNew,
  proxyActivities,
  proxySinks,
  setHandler,
  workflowInfo,
  type Sinks,
} from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';
import { due, endOf, interruptsAt, Slots, type RunState } from '../src/core/due.ts';
import { currentStart } from '../src/core/earlier-start.ts';
import type { TurnResult, TurnStart } from '../src/core/history.ts';
import type { CancelReason } from '../src/core/records/turn.ts';
import type { CommandEvent } from '../src/core/turn-command.ts';
import { afterQueue, type BeginTurn } from '../src/core/turn-queue.ts';
import { turnResult, type ThreadResult } from '../src/core/turn-result.ts';
import { Alarm } from './alarm.ts';
import { beginner, type SpeculationSinks } from './begin.ts';
import { errorMessage } from './errors.ts';
import { beginTurn, cancelTurn, commandTurn } from './messages.ts';
import { TurnLog } from './turn-log.ts';

/** Sinks of the worker; calls to them are not part of the history. */
export interface TurnSinks extends Sinks {
  turns: {
    /** The turn cancels its activities, which are notified with their next heartbeat. */
    cancelling(turnId: string): void;
    /** The same for a few activities: the turn continues. */
    cancellingCalls(turnId: string): void;
    /** The log grows without the result of an activity: commands were recorded, or the turn ends. */
    growing(turnId: string): void;
  };
}

/**
 * Archives a running turn's log up to an entry: at each pause, question and decision, for people, lists and webhooks;
 * after a continue-as-new, before Temporal deletes the previous run. Retried while the turn lasts. Its end is archived
 * by the session's worker.
 */
const { archiveTurn } = proxyActivities<Pick<Activities, 'archiveTurn'>>({
  startToCloseTimeout: '10 minutes',
  heartbeatTimeout: '30 seconds',
  retry: { maximumInterval: '1 minute' },
});

const { speculation, turns } = proxySinks<TurnSinks & SpeculationSinks>();

/** The clocks of workers and of Temporal differ less than this. */
const MAX_CLOCK_DIFFERENCE_MS = 60_000;

/** A turn: one request/response cycle of a session. Its history is its log. */
export async function turn(input: TurnStart): Promise<TurnResult> {
  const start = currentStart(input);
  if (start.queued) return untilBegun(start);
  const { carry, turnId, sessionId, begun, limits } = start;
  const { runId: previousRunId, startTime, originalExecutionRunId } = workflowInfo();
  const deadline = carry?.deadline ?? startTime.getTime() + limits.seconds * 1000;
  const log = new TurnLog(start);
  const { actions } = log;
  const deadlineNow = () => deadline + actions.pauses.waitedMs;
  // Only the activities check the run, since this code must replay the events before a reset.
  const guard = () => ({ runId: start.resetRunId ?? originalExecutionRunId, deadline: deadlineNow() });

  let reason: CancelReason | undefined;
  const steps = new CancellationScope();
  const stop = (why: CancelReason) => {
    if (!reason) turns.cancelling(turnId);
    reason ??= why;
    steps.cancel();
  };
  /** Whether the turn begins nothing more, and ends when nothing runs. */
  const isStopping = () => {
    if (!actions.isPaused && Date.now() >= deadlineNow()) stop('server-execution-timeout');
    if (actions.failure !== undefined) steps.cancel();
    return reason !== undefined || actions.failure !== undefined || actions.budget.failure !== undefined;
  };

  /** The commands that have arrived since the last task. */
  let inbox: CommandEvent[] = [];
  /** An activity has ended since. */
  let hasEnded = true;
  /** The catalog is brought up to the end of the current task. */
  let isArchiveDue = false;
  let bug: unknown;
  /** The host of a cell that was to be interrupted has not responded. */
  let isUnreached = false;
  setHandler(commandTurn, (command) => {
    inbox.push(command);
  });
  setHandler(cancelTurn, (why) => {
    // The worker that runs an activity is not notified of later pauses of the turn.
    const isOverdue = !actions.isPaused && Date.now() + MAX_CLOCK_DIFFERENCE_MS >= deadlineNow();
    // The turn accepts no commands that arrive later.
    if (why !== 'server-execution-timeout') inbox.push({ type: 'cancelled' });
    else if (!isOverdue) return;
    stop(why);
  });
  CancellationScope.current().cancelRequested.catch(() => stop('abandoned'));
  if (begun?.cancelled) stop(begun.cancelled);
  const alarm = new Alarm(() => actions.nextDue);
  const begin = beginner({
    start,
    log,
    guard,
    steps,
    onEnd: (entries) => {
      hasEnded = true;
      isArchiveDue ||= actions.waits && entries.some(({ record }) => record.kind === 'mcp.auth_required');
    },
    onError: (error) => {
      bug = error;
    },
    onUnreached: (key) => {
      interrupted.delete(key);
      isUnreached = true;
    },
  });
  const forced = new Set<string>();
  const interrupted = new Set<string>();
  const slots = new Slots(limits.subAgents);
  let run: RunState = { isStopping: false, isDraining: false, forced, interrupted, isTimeUp: false, slots };
  /** Code that runs when the turn is to answer is interrupted: no other end wakes the workflow then. */
  const interruptsNext = () => interruptsAt(log.state, run, Date.now());
  const isTimeUp = () => (interruptsNext() ?? Infinity) <= Date.now();
  const interruptAlarm = new Alarm(interruptsNext);

  /** The results of a task come before its commands, for every reader of the history. */
  function endTask(): void {
    const [wasHeld, now] = [actions.isHeld, Date.now()];
    const commands = inbox;
    inbox = [];
    hasEnded = false;
    const entries = log.taskEnded(now, commands);
    if (entries.length > 0) turns.growing(turnId);
    if (actions.isHeld !== wasHeld || commands.some(({ type }) => type !== 'answer')) speculation.changed(turnId);
    // The inbox, lists, limits and webhooks depend on what waits, what was decided, and whether the turn is paused.
    const isNews = isArchiveDue || entries.some(({ record }) => record.kind !== 'user.steered');
    isArchiveDue = false;
    if (isNews) archiveTurn({ turnId, sessionId, through: log.state.ordinal }).catch(() => undefined);
    alarm.set();
  }

  const hasNews = () =>
    // First, and before the end of a task, which may pause the turn: a paused one has no deadline.
    isStopping() !== run.isStopping ||
    hasEnded ||
    inbox.length > 0 ||
    bug !== undefined ||
    workflowInfo().continueAsNewSuggested !== run.isDraining ||
    isTimeUp() ||
    isUnreached ||
    actions.isUnsettled(Date.now());

  async function untilEnd(): Promise<ThreadResult> {
    // Calls that have waited since the previous run may be due.
    alarm.set();
    // No request is in progress that would move it from the queue to the turns in the index.
    if (begun && !carry) archiveTurn({ turnId, sessionId, through: 0 }).catch(() => undefined);
    if (carry) archiveTurn({ turnId, sessionId, through: carry.ordinal }).catch(() => undefined);
    for (;;) {
      await condition(hasNews);
      await microtasksDone();
      if (bug !== undefined) throw bug;
      isUnreached = false;
      endTask();
      const { continueAsNewSuggested: isDraining } = workflowInfo();
      run = { ...run, isStopping: isStopping(), isDraining, isTimeUp: isTimeUp() };
      const end = endOf(log.state, run);
      if (end) return end;
      for (const work of due(log.state, run)) {
        if (work.name === 'forceDelegate') forced.add(work.sessionId);
        if ('key' in work) interrupted.add(work.key);
        if (work.name === 'cancelCall') turns.cancellingCalls(turnId);
        begin(work);
      }
      interruptAlarm.set();
    }
  }

  let end: ThreadResult;
  try {
    // A turn that is being cancelled still records what ends, and the commands that arrive.
    end = await CancellationScope.nonCancellable(untilEnd);
    if (actions.failure !== undefined && !reason) end = { status: 'error', ...actions.failure };
    const message = actions.budget.failure;
    if (message !== undefined && !reason && end.status === 'stopped') {
      end = { status: 'error', message, code: 'budget_exceeded' };
    }
    if (end.status === 'continue' && !reason) {
      const { resumes: _, ...constants } = start;
      return await continueTurn({ ...constants, carry: { ...log.open, previousRunId, deadline } });
    }
  } catch (error) {
    if (error instanceof ContinueAsNew) throw error;
    // Rethrown, it would fail the workflow task for ever.
    end = { status: 'error', message: errorMessage(error) };
  }
  turns.growing(turnId);
  return turnResult(end, reason, actions.steering.authors);
}

/**
 * Resolves at the end of the current workflow task, when all that follows from its jobs is done. The SDK evaluates a
 * condition when it is created, after each job of an activation, and after the last job whenever no microtask is left.
 * A condition that is created in a microtask meets no job, so its second evaluation is the one at the end.
 */
async function microtasksDone(): Promise<void> {
  let evaluations = 0;
  await condition(() => evaluations++ > 0);
}

/**
 * The run of a turn that waits in the queue of its session. It continues as new as the run that an unqueued turn begins
 * with, so its log, its time limit and its readers begin there. A turn that is cancelled in the queue has no other run.
 */
async function untilBegun(waiting: TurnStart): Promise<TurnResult> {
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

/**
 * Continues a turn as new. A run that results from an operator's reset passes that on to the next one, whose activities
 * are rejected and whose log is not read: a new run id alone does not show the reset.
 */
function continueTurn(next: TurnStart): Promise<never> {
  const { runId, originalExecutionRunId } = workflowInfo();
  const isReset = runId !== originalExecutionRunId;
  return continueAsNew<typeof turn>({ ...(isReset && { resetRunId: originalExecutionRunId }), ...next });
}
