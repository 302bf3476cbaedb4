import { CancellationScope, condition, isCancellation, TimeoutFailure, workflowInfo } from '@temporalio/workflow';
import type {
  ActivityResult,
  CallToolInput,
  RunGuard,
  ScheduledActivity,
  TurnContinuation,
  TurnStart,
} from '../src/core/history.ts';
import { resolutionOf, type Ended, type TurnProjection } from '../src/core/projection.ts';
import type { LogEntry, OpenThread, PendingCall } from '../src/core/records.ts';
import type { TurnActions } from '../src/core/turn-actions.ts';
import type { TurnEvent } from '../src/core/turn-command.ts';
import { isAnswerable } from '../src/core/tool-records.ts';
import type { ThreadState } from '../src/core/thread-state.ts';
import type { TurnTotals } from '../src/core/turn-totals.ts';
import { causeOf, errorMessage } from './errors.ts';
import { Slots } from './slots.ts';

/**
 * A tool call that may run: it needs no approval, is approved, has waited for a sign-in, or continues with an answer of
 * the user.
 */
export type ReadyCall = Pick<PendingCall, 'toolCallId' | 'source' | 'signInId' | 'edited' | 'policy' | 'requesters'> &
  Partial<Pick<PendingCall, 'needs' | 'isAskedAgain' | 'onReplaced'>> &
  Pick<CallToolInput, 'answered' | 'repeats'>;

/** What a thread continues with that was open at the end of the previous run or turn. */
export interface Resumed {
  /** Calls that the turn's input has allowed. */
  ready: ReadyCall[];
  /** Calls that still wait for a human or a client. */
  pending: PendingCall[];
  /** Its sub-agents. */
  threads: OpenThread[];
}

/** The result of an activity that adds to the log. */
type StepResult = Omit<Extract<ActivityResult, { how: 'completed' }>, 'how'>;

interface TurnScopeOptions {
  start: TurnStart;
  /** When the turn times out, in milliseconds since 1970; later if it was paused in the meantime. */
  deadline: () => number;
  log: TurnProjection;
  actions: TurnActions;
  stopped: () => boolean;
  /** Whether the end of the current task records commands. */
  commandsDue: () => boolean;
  /** The result of an activity requests a sign-in, in a turn that waits for it. */
  onSignIn: () => void;
}

/** What the threads of a turn share: its log, its limits, and what it was started with. */
export class TurnScope {
  readonly start: TurnStart;
  readonly actions: TurnActions;
  readonly slots: Slots;
  readonly stopped: () => boolean;
  readonly #commandsDue: () => boolean;
  readonly #onSignIn: () => void;
  readonly #deadline: () => number;
  readonly #runId: string;
  readonly #log: TurnProjection;
  /** How many activities this run has begun. */
  #activities = 0;
  /** The results of this run, and the last of the previous one: their stamps, and how many records came before each. */
  readonly #results: { stamp: string; after: number }[];

  constructor({ start, deadline, log, actions, stopped, commandsDue, onSignIn }: TurnScopeOptions) {
    const { carry, limits } = start;
    this.start = start;
    this.#log = log;
    this.actions = actions;
    this.stopped = stopped;
    this.#commandsDue = commandsDue;
    this.#onSignIn = onSignIn;
    this.#deadline = deadline;
    this.slots = new Slots(limits.subAgents);
    this.#results = (carry?.next?.recent ?? []).map((stamp) => ({ stamp, after: 0 }));
    // Only the activities check the run, since this code must replay the events before a reset.
    this.#runId = start.resetRunId ?? workflowInfo().originalExecutionRunId;
  }

  get run(): RunGuard {
    return { runId: this.#runId, deadline: this.#deadline() };
  }

  /**
   * Whether a thread may begin a model call or a tool call. Commands that have arrived are recorded first, at the end of
   * the workflow task: they may hold the turn, or belong to what the model reads.
   */
  get mayBegin(): boolean {
    return !this.actions.isHeld && !this.#commandsDue();
  }

  /** Waits until a thread may begin a call, or `isOver`; both end at once when the turn stops. */
  async untilMayBegin(isOver = (): boolean => false): Promise<void> {
    const isClear = () => this.mayBegin || this.stopped() || isOver();
    if (!isClear()) await CancellationScope.nonCancellable(() => condition(isClear));
  }

  /** Waits until the commands that have arrived are recorded. */
  async untilRecorded(): Promise<void> {
    await CancellationScope.nonCancellable(() => condition(() => !this.#commandsDue()));
  }

  /** What a thread has done. */
  thread(threadId: string): Readonly<ThreadState> {
    return this.#log.thread(threadId);
  }

  /** How many records the log has. */
  get ordinal(): number {
    return this.#log.ordinal;
  }

  get progress(): Pick<TurnContinuation, 'ordinal' | 'started' | keyof TurnTotals> {
    const { ordinal, totals, startedAgents: started } = this.#log;
    return { ordinal, ...totals, ...(started > 0 && { started }) };
  }

  /** An activity begins. Returns its id in the log; none in a cancelled scope, where it is never scheduled. */
  scheduled(activity: ScheduledActivity): number | undefined {
    if (CancellationScope.current().consideredCancelled) return undefined;
    this.#activities += 1;
    this.#log.scheduled(this.#activities, activity);
    return this.#activities;
  }

  /** An activity has ended. Without a result, `error` is why. */
  ended(id: number | undefined, end: { result: StepResult } | { error: unknown }): Ended {
    if (id === undefined) return { entries: [] };
    const after = this.ordinal;
    const at = new Date().toISOString();
    const result: ActivityResult = 'result' in end ? { how: 'completed', ...end.result } : failureOf(end.error);
    const ended = this.#log.ended(id, at, result);
    this.#noteRecords(after, result.how === 'completed' ? result.stamp : undefined);
    const asksForSignIn = ended.entries.some(({ record }) => record.kind === 'mcp.auth_required');
    if (asksForSignIn && this.actions.waits) this.#onSignIn();
    return ended;
  }

  /** Ends a workflow task with the commands that have arrived. Returns what is added to the log. */
  taskEnded(now: number, commands: readonly TurnEvent[]): LogEntry[] {
    const after = this.ordinal;
    const { entries } = this.#log.taskEnded(now, commands);
    this.#noteRecords(after);
    return entries;
  }

  /** No worker caches what the log adds without a result: with an empty stamp, the next model call reads the history. */
  #noteRecords(after: number, stamp = ''): void {
    if (stamp !== '' || this.ordinal > after) this.#results.push({ stamp, after });
  }

  /** The stamps of the results that came after the log had `ordinal` records. */
  stampsSince(ordinal: number): string[] {
    const first = this.#results.findLastIndex(({ after }) => after < ordinal) + 1;
    return this.#results.slice(first).map(({ stamp }) => stamp);
  }

  /** How many sub-agents a thread's next message may start. */
  startable(depth: number): number {
    return this.#log.startable(depth);
  }

  /** Whether a person is asked about a call that begins now if its outcome is unknown. */
  get mayAskIfUnknown(): boolean {
    return this.#log.mayAskIfUnknown;
  }

  /** What a thread continues with when this run begins. */
  resumed(threadId: string): Resumed {
    const { carry, resumes } = this.start;
    const own = resumes.filter((call) => call.threadId === threadId);
    const carried = (carry?.pending ?? []).filter((call) => call.threadId === threadId);
    return {
      // What waits at the end of a run for a sign-in is tried again: only its own requests are in the log of a run.
      ready: carry ? carried.filter((call) => !isAnswerable(call)) : own.flatMap((call) => this.#allowed(call)),
      pending: carried.filter(isAnswerable),
      threads: ((carry ?? this.start).threads ?? []).filter(({ parent }) => parent.threadId === threadId),
    };
  }

  /** The call, if the turn's input allows that it runs or continues. */
  #allowed(call: PendingCall): ReadyCall[] {
    const { source, elicitation } = call;
    const resolution = resolutionOf(call, this.start.input);
    if (resolution.status === 'response' && elicitation) {
      return [{ ...call, answered: { elicitation, content: resolution.content } }];
    }
    if (!source.run || resolution.status !== 'allow') return [];
    const { edited } = resolution;
    const repeats = call.unknownOutcome !== undefined && { repeats: true as const };
    return [{ ...call, ...(edited && { edited }), ...repeats }];
  }
}

/** What an activity without a result has ended with. */
function failureOf(error: unknown): Exclude<ActivityResult, { how: 'completed' }> {
  // Only the history knows whether a cancelled one had started; that decides nothing here.
  if (isCancellation(error)) return { how: 'cancelled', started: true };
  const cause = causeOf(error);
  return cause instanceof TimeoutFailure ? { how: 'timed_out' } : { how: 'failed', message: errorMessage(cause) };
}
