import {
  ActivityCancellationType,
  ActivityFailure,
  isCancellation,
  proxyActivities,
  workflowInfo,
} from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';
import type {
  Appended,
  AppendingActivity,
  CallModelResult,
  CallToolInput,
  RunGuard,
  TurnContinuation,
  TurnResult,
  TurnStart,
} from '../src/core/history.ts';
import { DIGITS, ulid } from '../src/core/ids.ts';
import { countFailureRecords, firstCallOf, resolutionOf, startsWithModelCall } from '../src/core/projection.ts';
import {
  addUsage,
  type CallSource,
  type MessagePlan,
  type ModelMessage,
  type PendingCall,
  type PendingElicitation,
} from '../src/core/records.ts';
import { errorMessage } from './errors.ts';

/** The progress of a turn, shared by its threads, since they share its log. */
export type Progress = Pick<TurnContinuation, 'ordinal' | 'step' | 'usage'>;

export type ThreadResult =
  | Exclude<TurnResult, { status: 'cancelled' }>
  /** The turn is being cancelled. */
  | { status: 'stopped' }
  /** The run should continue as new; no activity is running. */
  | { status: 'continue' };

interface ThreadOptions {
  start: TurnStart;
  threadId: string;
  /** When the turn times out, in milliseconds since 1970. */
  deadline: number;
  progress: Progress;
  stopped: () => boolean;
}

/** A tool call that may run: it needs no approval, or is approved, or continues with an answer of the user. */
type ReadyCall = Pick<PendingCall, 'toolCallId' | 'source'> & Pick<CallToolInput, 'answered'>;

/**
 * With the default, a workflow sees a cancellation at once although a result may still be added to its history. The log
 * would then have records that the workflow has not counted.
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

/** Unreachable servers are a result, not a failure; lost workers and shutdowns are retried. */
const { connectTools } = proxyActivities<Pick<Activities, 'connectTools'>>({
  startToCloseTimeout: '5 minutes',
  heartbeatTimeout: HEARTBEAT_TIMEOUT,
  cancellationType,
  retry: { initialInterval: '100 milliseconds', maximumInterval: '10 seconds' },
});

/** How many tools run at once: a workflow task that schedules hundreds is slow and large. */
const MAX_CONCURRENT_TOOLS = 50;

/** How many calls may wait for an answer of the user at once: one event has all of their questions. */
const MAX_WAITING = 32;

/** What the server of a further call is told. */
const CANCELLED_ANSWER = JSON.stringify({ action: 'cancel' });

/** How long a task waits for the process that keeps its call open, which otherwise has ended. */
const KEPT_OPEN_TIMEOUT = '10 seconds';

/** The agent loop of one thread: calls the model and runs its tool calls until it calls none, or calls are pending. */
export class Thread {
  readonly #start: TurnStart;
  readonly #threadId: string;
  readonly #progress: Progress;
  readonly #stopped: () => boolean;
  readonly #run: RunGuard;
  /** Stamps of the results since the last model call. */
  #recent: string[] = [];

  constructor({ start, threadId, deadline, progress, stopped }: ThreadOptions) {
    this.#start = start;
    this.#threadId = threadId;
    this.#progress = progress;
    this.#stopped = stopped;
    // Only the activities check the run, since this code must replay the events before a reset.
    const { originalExecutionRunId: runId } = workflowInfo();
    this.#run = { runId, ...(start.carry?.isReset && { isReset: true }), deadline };
  }

  async run(): Promise<ThreadResult> {
    if (!this.#start.carry) {
      // A turn that starts with a model call connects to its servers in that call.
      if (this.#start.hasServers && !startsWithModelCall(this.#start)) await this.#connectTools();
      const pending = await this.#callTools(this.#start.resumes.flatMap((call) => this.#resumed(call)));
      if (this.#stopped()) return { status: 'stopped' };
      if (pending.length > 0) return { status: 'done', pending };
    }
    for (;;) {
      if (this.#stopped()) return { status: 'stopped' };
      if (workflowInfo().continueAsNewSuggested) return { status: 'continue' };
      if (this.#progress.step >= this.#start.limits.iterations) {
        const { iterations } = this.#start.limits;
        return { status: 'error', message: `The turn reached its iteration limit of ${iterations} model calls.` };
      }
      const end = await this.#step();
      if (end) return end;
    }
  }

  async #step(): Promise<ThreadResult | undefined> {
    const answer = await this.#callModel();
    if ('status' in answer) return answer;
    const { message, stamp } = answer;
    if (message.finishReason === 'length') {
      return { status: 'error', message: 'The model stopped at its limit of output tokens (finish_reason: length).' };
    }
    if (message.toolCalls.length === 0) return { status: 'done', pending: [] };
    const ready: ReadyCall[] = [];
    const pending: PendingCall[] = [];
    for (const [index, { id: toolCallId, route }] of message.toolCalls.entries()) {
      const source: CallSource = { turnId: this.#start.turnId, messageId: message.id, stamp, index };
      const call = { threadId: this.#threadId, toolCallId };
      if (route.to === 'client') pending.push({ ...call, needs: 'response', source });
      if (route.to !== 'server') continue;
      source.run = { effect: route.effect, callHash: route.callHash };
      if (route.approval) pending.push({ ...call, needs: 'approval', source });
      else ready.push({ toolCallId, source });
    }
    pending.push(...(await this.#callTools(ready)));
    if (this.#stopped()) return { status: 'stopped' };
    return pending.length > 0 ? { status: 'done', pending } : undefined;
  }

  async #callModel(): Promise<{ message: ModelMessage; stamp: string } | ThreadResult> {
    const { turnId, sessionId, owner, previousTurnId, sequence, specHash } = this.#start;
    let result: CallModelResult;
    const recent = this.#recent;
    this.#recent = [];
    this.#progress.step += 1;
    const isFirst = this.#progress.step === 1;
    const plan = isFirst && startsWithModelCall(this.#start) ? firstCallOf(this.#start) : this.#nextCall();
    try {
      result = await callModel({
        turnId,
        sessionId,
        owner,
        ...plan,
        previousTurnId,
        sequence,
        specHash,
        step: this.#progress.step,
        recent,
        ...this.#run,
        ...(isFirst && isSmall(this.#start) && { start: this.#start }),
      });
    } catch (error) {
      this.#count('callModel', undefined, plan);
      if (isCancellation(error)) return { status: 'stopped' };
      return { status: 'error', message: causeOf(error) };
    }
    this.#count('callModel', result);
    for (const record of result.records) {
      if (record.kind === 'model.message') this.#progress.usage = addUsage(this.#progress.usage, record.usage);
    }
    const { outcome, records, stamp } = result;
    if (outcome.status === 'error') return { status: 'error', message: outcome.message };
    if (outcome.status === 'cancelled') return { status: 'stopped' };
    const message = records.find((record) => record.kind === 'model.message');
    if (!message) throw new Error('callModel returned no message');
    return { message, stamp };
  }

  #nextCall(): MessagePlan {
    return {
      threadId: this.#threadId,
      messageId: newMessageId(),
      createdAt: new Date().toISOString(),
      upTo: this.#progress.ordinal,
    };
  }

  /** The call that the turn's input allows to run, or to continue. */
  #resumed(call: PendingCall): ReadyCall[] {
    const { toolCallId, source, elicitation } = call;
    const resolution = resolutionOf(call, this.#start.input);
    if (resolution.status === 'response' && elicitation) {
      return [{ toolCallId, source, answered: { elicitation, content: resolution.content } }];
    }
    return source.run && resolution.status === 'allow' ? [{ toolCallId, source }] : [];
  }

  /** Returns the calls that wait for an answer of the user, at most `room`. */
  async #callTools(calls: ReadyCall[], room = MAX_WAITING): Promise<PendingCall[]> {
    const waiting = [...calls];
    const asking: (ReadyCall & { elicitation: PendingElicitation })[] = [];
    const lane = async (): Promise<void> => {
      for (let call = waiting.shift(); call && !this.#stopped(); call = waiting.shift()) {
        const elicitation = await this.#callTool(call);
        if (elicitation) asking.push({ ...call, elicitation });
      }
    };
    await Promise.all(calls.slice(0, MAX_CONCURRENT_TOOLS).map(lane));
    const further = asking.slice(room).map(({ toolCallId, source, elicitation }) => ({
      toolCallId,
      source,
      answered: { elicitation, content: CANCELLED_ANSWER },
    }));
    if (further.length > 0) await this.#callTools(further, 0);
    return asking.slice(0, room).map(({ toolCallId, source, elicitation }) => ({
      threadId: this.#threadId,
      toolCallId,
      needs: 'response',
      source,
      elicitation,
    }));
  }

  /**
   * Returns the question if the call waits for an answer of the user. Never throws: every outcome of a tool is in the
   * log and in the next request to the model.
   */
  async #callTool({ toolCallId, source, answered }: ReadyCall): Promise<PendingElicitation | undefined> {
    const { turnId, sessionId, owner, specHash, limits } = this.#start;
    const keptOpenBy = source.run?.effect === 'once' ? answered?.elicitation.keptOpenBy : undefined;
    const { callTool } = proxyActivities<Pick<Activities, 'callTool'>>({
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
    const call = { toolCallId, source, ...(answered && { answered }) };
    const input = { turnId, sessionId, owner, threadId: this.#threadId, specHash, ...call, ...this.#run };
    try {
      const result = await callTool(input);
      this.#count('callTool', result);
      return result.elicitation;
    } catch {
      this.#count('callTool');
      return undefined;
    }
  }

  async #connectTools(): Promise<void> {
    const { turnId, sessionId, owner, specHash } = this.#start;
    try {
      const input = { turnId, sessionId, owner, threadId: this.#threadId, specHash, ...this.#run };
      this.#count('connectTools', await connectTools(input));
    } catch {
      // The turn continues: each model call loads the tools itself, and its prompt lists the unavailable servers.
      this.#count('connectTools');
    }
  }

  /**
   * Counts the records that an activity returned or, without a result, those that the projection adds for its failure.
   */
  #count(activity: AppendingActivity, result?: Appended, plan?: MessagePlan): void {
    const records = result?.records.length ?? countFailureRecords(activity, plan);
    this.#progress.ordinal += records;
    // No worker caches what the projection adds: with an empty stamp the next model call reads it from the history.
    if (result || records > 0) this.#recent.push(result?.stamp ?? '');
  }
}

/** In a workflow `Date.now` and `Math.random` are deterministic: a replay mints the same ids. */
function newMessageId(): string {
  return ulid('msg', Date.now(), () => Math.floor(Math.random() * DIGITS));
}

/** Whether a start is small enough to be in the history twice. */
function isSmall(start: TurnStart): boolean {
  return JSON.stringify(start).length <= 4096;
}

function causeOf(error: unknown): string {
  return errorMessage(error instanceof ActivityFailure ? (error.cause ?? error) : error);
}
