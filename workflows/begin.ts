import {
  ActivityCancellationType,
  CancellationScope,
  condition,
  proxyActivities,
  proxySinks,
  TimeoutFailure,
  workflowInfo,
  type Sinks,
} from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';
import {
  callModelInput,
  callToolInput,
  resumeCellInput,
  threadInput,
  type RunningTurn,
} from '../src/core/call-inputs.ts';
import type { Work } from '../src/core/due.ts';
import { causeOf } from './errors.ts';
import { runsInSandbox } from '../src/core/call.ts';
import { isCode } from '../src/core/code-threads.ts';
import { kernelQueue } from '../src/core/temporal-names.ts';
import type {
  CallToolInput,
  InterruptCellInput,
  ScheduledBy,
  ScheduledActivity,
  ThreadInput,
  TurnBounds,
  TurnStart,
} from '../src/core/history.ts';
import { DIGITS, ulid } from '../src/core/ids.ts';
import type { LogEntry } from '../src/core/records/log.ts';
import type { PlannedMessage } from '../src/core/records/message.ts';
import { callKey } from '../src/core/tool-records.ts';
import type { StepResult, TurnLog } from './turn-log.ts';

/** Sinks of the worker; calls to them are not part of the history. */
export interface SpeculationSinks extends Sinks {
  speculation: {
    /** A command has changed what comes next in the turn. If the turn is held, its threads begin nothing. */
    changed(turnId: string): void;
    /** The turn, which is not held, calls the model for this message. */
    modelCalled(messageId: string): void;
  };
}

const { speculation } = proxySinks<SpeculationSinks>();

/**
 * With the default, a workflow sees a cancellation at once although a result may still be added to its history. The log
 * would then have records that the workflow does not have.
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

/** How long a session waits for a kernel host that has room for it. */
const SANDBOX_TIMEOUT = '60 seconds';

/**
 * Any kernel host can open a sandbox, and opens it once. Hosts share a task queue of their own, since workers cannot: a
 * host that accepts the task and is lost is replaced by another one.
 */
function openSandbox(input: ThreadInput): ReturnType<Activities['openSandbox']> {
  const hosts = proxyActivities<Pick<Activities, 'openSandbox'>>({
    taskQueue: kernelQueue(workflowInfo().taskQueue),
    scheduleToCloseTimeout: SANDBOX_TIMEOUT,
    startToCloseTimeout: '30 seconds',
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    cancellationType,
    retry: { initialInterval: '100 milliseconds', maximumInterval: '5 seconds' },
  });
  return hosts.openSandbox(input);
}

/** The highest time limit of a call (`kernel.timeout_seconds`), and the time to return its result. */
const MAX_CALL_IN_SANDBOX = '25 hours';

/** A host that does not begin a call in this time is gone: the hosts have room for all calls. */
const HOST_TIMEOUT = '10 seconds';

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
  guard: () => ScheduledBy;
  /** Its cancellation cancels what was begun. */
  steps: CancellationScope;
  /** An activity has ended, and has added these to the log. */
  onEnd: (entries: LogEntry[]) => void;
  /** The log does not accept an end: a bug, which ends the turn. */
  onError: (error: unknown) => void;
  /** The host of a cell that is to be interrupted has not responded: it is draining, or lost. */
  onUnreached: (key: string) => void;
}

/** Begins what is due in a turn, and adds its end to the log. */
export function beginner({
  start,
  log,
  guard,
  steps,
  onEnd,
  onError,
  onUnreached,
}: BeginOptions): (work: Work) => void {
  /** The scopes of tools that code has called, by the keys of the calls. */
  const ofCode = new Map<string, CancellationScope>();
  /** @param cancellable the key of the call, if it may be cancelled alone */
  const activity = (scheduled: ScheduledActivity, run: () => Promise<StepResult>, cancellable?: string): void => {
    const id = log.scheduled(scheduled);
    const alone = async (): Promise<StepResult> => {
      if (cancellable === undefined) return run();
      const scope = new CancellationScope();
      ofCode.set(cancellable, scope);
      return scope.run(run).finally(() => ofCode.delete(cancellable));
    };
    steps
      .run(alone)
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
        const input = threadInput(turn, work.threadId);
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
        const input = callToolInput(turn, work.call, Date.now());
        const host = runsInSandbox(work.call) ? log.state.sandboxHost : undefined;
        const isOfCode = isCode(log.state.thread(input.threadId));
        const run = () => callTool(input, start.limits, host);
        return activity({ name: work.name, input }, run, isOfCode ? callKey(input) : undefined);
      }
      case 'openSandbox': {
        const input = threadInput(turn, work.threadId);
        return activity({ name: work.name, input }, () => openSandbox(input));
      }
      case 'resumeCell': {
        const input = resumeCellInput(turn, work.threadId, Date.now());
        const host = log.state.sandboxHost;
        return activity({ name: work.name, input }, () => onHost(host).resumeCell(input));
      }
      case 'forceDelegate': {
        const hasAnswered = (): boolean =>
          log.actions.delegations.started.every(({ sessionId }) => sessionId !== work.sessionId);
        force({ childSessionId: work.sessionId, ...turn.guard }, start, hasAnswered).catch(() => undefined);
        return;
      }
      case 'holdCell':
      case 'interruptCell': {
        const { threadId, toolCallId } = work.call;
        const held = work.name === 'holdCell' && { heldPiece: work.piece };
        const input = { turnId: start.turnId, threadId, toolCallId, ...held, ...turn.guard };
        // It is tried again until the cell has ended: a host that is lost ends it, too.
        return void interruptCell(input, log.state.sandboxHost).catch((error: unknown) => {
          if (causeOf(error) instanceof TimeoutFailure) onUnreached(work.key);
        });
      }
      case 'cancelCall':
        ofCode.get(work.key)?.cancel();
    }
  };
}

/** @param host the task queue of the host that runs the call, if it runs in a sandbox */
function callTool(
  input: CallToolInput,
  limits: TurnBounds,
  host: string | undefined,
): ReturnType<Activities['callTool']> {
  if (host !== undefined) return onHost(host).callTool(input);
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
 * The activities of the host that has the sandbox. It starts a call once, and each further attempt waits for its end:
 * only the loss of the host makes an outcome unknown. The host ends a call at its time limit, without the time for
 * which the call has waited for people.
 */
function onHost(taskQueue: string | undefined): Pick<Activities, 'callTool' | 'resumeCell'> {
  if (taskQueue === undefined) throw new Error('the sandbox of the session is not open');
  return proxyActivities<Pick<Activities, 'callTool' | 'resumeCell'>>({
    taskQueue,
    scheduleToStartTimeout: HOST_TIMEOUT,
    startToCloseTimeout: MAX_CALL_IN_SANDBOX,
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    cancellationType,
    retry: { initialInterval: '100 milliseconds', maximumInterval: '1 second' },
  });
}

/** Has the host of a cell interrupt it, or begin no more calls of it. A repetition has no effect. */
async function interruptCell(input: InterruptCellInput, taskQueue: string | undefined): Promise<void> {
  if (taskQueue === undefined) return;
  const host = proxyActivities<Pick<Activities, 'interruptCell'>>({
    taskQueue,
    scheduleToStartTimeout: HOST_TIMEOUT,
    startToCloseTimeout: '5 seconds',
    retry: { initialInterval: '100 milliseconds', maximumInterval: '1 second' },
  });
  await host.interruptCell(input);
}

/**
 * Forces the agents to answer to which the turn has delegated calls, once it is to answer itself. An agent that has not
 * answered after the grace period is stopped, and its text so far is its answer. The turn's next run starts again.
 */
async function force(
  delegate: ScheduledBy & { childSessionId: string },
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
