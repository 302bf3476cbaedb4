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
} from '../src/core/records.ts';
import { mayRepeatSignIns } from '../src/core/sign-ins.ts';
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

/** A tool call that may run: it needs no approval, or is approved. */
type ReadyCall = Pick<PendingCall, 'toolCallId' | 'source' | 'signInId'>;

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
      const allowed = this.#start.resumes.filter(
        (call) => call.source.run && resolutionOf(call, this.#start.input).status === 'allow',
      );
      const waiting = await this.#callTools(allowed);
      if (waiting.length > 0 && !this.#stopped()) return { status: 'done', pending: waiting };
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
    if (outcome.status === 'sign_in_required') return { status: 'done', pending: [] };
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

  /** Returns the calls that wait for a sign-in. */
  async #callTools(calls: ReadyCall[]): Promise<PendingCall[]> {
    const waiting = [...calls];
    const unexecuted: PendingCall[] = [];
    const lane = async (): Promise<void> => {
      for (let call = waiting.shift(); call && !this.#stopped(); call = waiting.shift()) {
        unexecuted.push(...(await this.#callTool(call)));
      }
    };
    await Promise.all(calls.slice(0, MAX_CONCURRENT_TOOLS).map(lane));
    return unexecuted;
  }

  /**
   * Never throws: every outcome of a tool is in the log and in the next request to the model. Returns the call if it
   * waits for a sign-in.
   */
  async #callTool({ toolCallId, source, signInId }: ReadyCall): Promise<PendingCall[]> {
    const { turnId, sessionId, owner, specHash, limits, input: turnInput } = this.#start;
    const { callTool } = proxyActivities<Pick<Activities, 'callTool'>>({
      // The activity itself ends a call that takes too long, and needs time to return that.
      startToCloseTimeout: (limits.toolSeconds + 60) * 1000,
      cancellationType,
      ...(source.run?.effect === 'retry'
        ? // Considering its worker dead too early costs little. The activity counts failures and lost workers.
          { heartbeatTimeout: HEARTBEAT_TIMEOUT, retry: { maximumInterval: '30 seconds' } }
        : // A tool with effects that is not declared repeatable runs at most once, also if its worker is lost.
          { heartbeatTimeout: limits.toolHeartbeatSeconds * 1000, retry: { maximumAttempts: 1 } }),
    });
    const signIn = signInId !== undefined && { signIn: { id: signInId, mayRepeat: mayRepeatSignIns(turnInput) } };
    const place = { turnId, sessionId, owner, threadId: this.#threadId, specHash };
    try {
      const result = await callTool({ ...place, toolCallId, source, ...signIn, ...this.#run });
      this.#count('callTool', result);
      return result.records.flatMap((record) => (record.kind === 'mcp.auth_required' ? record.calls : []));
    } catch {
      this.#count('callTool');
      return [];
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
