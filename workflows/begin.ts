import {
  ActivityCancellationType,
  type CancellationScope,
  condition,
  proxyActivities,
  proxySinks,
  type Sinks,
} from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';
import { callModelInput, callToolInput, connectToolsInput, type RunningTurn } from '../src/core/call-inputs.ts';
import type { Work } from '../src/core/due.ts';
import type { CallToolInput, RunGuard, ScheduledActivity, TurnLimits, TurnStart } from '../src/core/history.ts';
import { DIGITS, ulid } from '../src/core/ids.ts';
import type { LogEntry, PlannedMessage } from '../src/core/records.ts';
import type { StepResult, TurnLog } from './turn-log.ts';

/** Sinks of the worker; calls to them are not part of the history. */
export interface SpeculationSinks extends Sinks {
  speculation: {
    /** A command has changed what comes next in the turn, which may be held: its threads begin nothing then. */
    changed(turnId: string): void;
    /** The turn, which is not held, calls the model for this message. */
    modelCalled(messageId: string): void;
  };
}

const { speculation } = proxySinks<SpeculationSinks>();

/**
 * With the default, a workflow sees a cancellation at once although a result may still be added to its history. The log
 * would then have records that the workflow does not know.
 */
const cancellationType = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED;

/**
 * After this time without a heartbeat a worker is considered lost. The interval is in
 * `src/temporal/activity-heartbeat.ts`.
 */
const HEARTBEAT_TIMEOUT = '4 seconds';

/**
 * Model calls have three kinds of retries. This policy retries lost workers and shutdowns; the heartbeat time-out and
 * the first interval are short, so that another worker resumes within 5 s. The activity sets `nextRetryDelay` for a
 * provider that fails, and ends the turn if it fails for too long or too many workers were lost.
 * `retryWhileUnavailable` retries reads and writes of the stores within an attempt. An attempt whose model stalls ends
 * itself.
 */
const { callModel } = proxyActivities<Pick<Activities, 'callModel'>>({
  startToCloseTimeout: '2 hours',
  heartbeatTimeout: HEARTBEAT_TIMEOUT,
  cancellationType,
  retry: { initialInterval: '100 milliseconds', maximumInterval: '30 seconds' },
});

/**
 * Unreachable servers are a result, not a failure; lost workers and shutdowns are retried. If it fails, the turn
 * continues: each model call loads the tools itself, and its prompt lists the unavailable servers.
 */
const { connectTools } = proxyActivities<Pick<Activities, 'connectTools'>>({
  startToCloseTimeout: '5 minutes',
  heartbeatTimeout: HEARTBEAT_TIMEOUT,
  cancellationType,
  retry: { initialInterval: '100 milliseconds', maximumInterval: '10 seconds' },
});

/** How long a task waits for the process that keeps its call open: if that is not available now, it has ended. */
const KEPT_OPEN_TIMEOUT = '10 seconds';

/** How long other agents may take to answer when the turn is to answer. */
const GRACE = '30 seconds';

/** A few quick calls to Temporal and the catalog, retried for ever, since the turn waits for what they cause. */
const { forceDelegate, stopDelegate } = proxyActivities<Pick<Activities, 'forceDelegate' | 'stopDelegate'>>({
  startToCloseTimeout: '30 seconds',
  retry: { initialInterval: '200 milliseconds', maximumInterval: '10 seconds' },
});

interface BeginOptions {
  start: TurnStart;
  log: TurnLog;
  guard: () => RunGuard;
  /** Its cancellation cancels what was begun. */
  steps: CancellationScope;
  /** An activity has ended, and has added these to the log. */
  onEnd: (entries: LogEntry[]) => void;
  /** The log does not accept an end: a bug, of which the turn ends. */
  onError: (error: unknown) => void;
}

/** Begins what is due in a turn, and adds how it has ended to the log. */
export function beginner({ start, log, guard, steps, onEnd, onError }: BeginOptions): (work: Work) => void {
  const activity = (scheduled: ScheduledActivity, run: () => Promise<StepResult>): void => {
    const id = log.scheduled(scheduled);
    steps
      .run(run)
      .then(
        (result) => log.ended(id, { result }),
        (error: unknown) => log.ended(id, { error }),
      )
      .then(onEnd)
      .catch(onError);
  };
  return (work) => {
    const turn: RunningTurn = { start, log: log.state, actions: log.actions, guard: guard() };
    switch (work.name) {
      case 'connectTools': {
        const input = connectToolsInput(turn, work.threadId);
        return activity({ name: work.name, input }, () => connectTools(input));
      }
      case 'callModel': {
        const { threadId } = work;
        const call = { threadId, now: Date.now(), newMessage, ...log.next(threadId) };
        const input = callModelInput(turn, call);
        // The call that the start has begun is also made in a turn that is held.
        if (!log.actions.isHeld) speculation.modelCalled(input.messageId);
        return activity({ name: work.name, input }, () => callModel(input));
      }
      case 'callTool': {
        const input = callToolInput(turn, work.call);
        return activity({ name: work.name, input }, () => callTool(input, start.limits));
      }
      case 'forceDelegate': {
        const hasAnswered = (): boolean => log.actions.delegated.every(({ sessionId }) => sessionId !== work.sessionId);
        force({ childSessionId: work.sessionId, ...turn.guard }, start, hasAnswered).catch(() => undefined);
      }
    }
  };
}

function callTool(input: CallToolInput, limits: TurnLimits): ReturnType<Activities['callTool']> {
  const { source, answered } = input;
  const keptOpenBy = source.run?.effect === 'once' ? answered?.elicitation.keptOpenBy : undefined;
  const activities = proxyActivities<Pick<Activities, 'callTool'>>({
    // The activity itself ends a call that takes too long, and needs time to return that.
    startToCloseTimeout: (limits.toolSeconds + 60) * 1000,
    cancellationType,
    ...(source.run?.effect === 'retry'
      ? // Considering its worker dead too early costs little. The activity counts failures and lost workers.
        { heartbeatTimeout: HEARTBEAT_TIMEOUT, retry: { maximumInterval: '30 seconds' } }
      : // A tool with effects that is not declared repeatable runs at most once, also if its worker is lost.
        { heartbeatTimeout: limits.toolHeartbeatSeconds * 1000, retry: { maximumAttempts: 1 } }),
    // Only the process that keeps a call open can continue it; a repeatable one is repeated by any other.
    ...(keptOpenBy && { taskQueue: keptOpenBy, scheduleToStartTimeout: KEPT_OPEN_TIMEOUT }),
  });
  return activities.callTool(input);
}

/**
 * Once the turn is to answer, the agents to which it has delegated calls are to answer too. One that has not after the
 * grace period is stopped: what it has written is its answer. The next run of a turn that continues as new begins again.
 */
async function force(
  delegate: RunGuard & { childSessionId: string },
  { createdBy: subject }: Pick<TurnStart, 'createdBy'>,
  hasAnswered: () => boolean,
): Promise<void> {
  forceDelegate({ ...delegate, subject }).catch(() => undefined);
  if (!(await condition(hasAnswered, GRACE))) await stopDelegate(delegate);
}

/** In a workflow `Date.now` and `Math.random` are deterministic: a replay mints the same ids. */
function newMessage(): PlannedMessage {
  const now = Date.now();
  return {
    messageId: ulid('msg', now, () => Math.floor(Math.random() * DIGITS)),
    createdAt: new Date(now).toISOString(),
  };
}
