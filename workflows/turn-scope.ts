import { CancellationScope, condition, workflowInfo } from '@temporalio/workflow';
import type {
  Appended,
  CallModelInput,
  CallModelResult,
  CallToolInput,
  RunGuard,
  TurnContinuation,
  TurnStart,
} from '../src/core/history.ts';
import { countFailureRecords, countStartRecords, resolutionOf } from '../src/core/projection.ts';
import type { OpenThread, PendingCall } from '../src/core/records.ts';
import { MAX_ASKING, type TurnActions } from '../src/core/turn-actions.ts';
import { startable } from '../src/core/sub-agents.ts';
import { isAnswerable } from '../src/core/tool-records.ts';
import { addFailedCall, addRecord, NO_TOTALS, type TurnTotals } from '../src/core/turn-totals.ts';
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

interface TurnScopeOptions {
  start: TurnStart;
  /** When the turn times out, in milliseconds since 1970; later if it was paused in the meantime. */
  deadline: () => number;
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
  readonly #run: Omit<RunGuard, 'deadline'>;
  #ordinal: number;
  #totals: TurnTotals;
  /** The calls that a person is, or may be, asked about because their outcome is unknown. */
  #questions: number;
  #started: number;
  /** The results of this run, and the last of the previous one: their stamps, and how many records came before each. */
  readonly #results: { stamp: string; after: number }[];

  constructor({ start, deadline, actions, stopped, commandsDue, onSignIn }: TurnScopeOptions) {
    const { carry, limits, threads } = start;
    this.start = start;
    this.actions = actions;
    this.stopped = stopped;
    this.#commandsDue = commandsDue;
    this.#onSignIn = onSignIn;
    this.#deadline = deadline;
    this.slots = new Slots(limits.subAgents);
    this.#ordinal = carry?.ordinal ?? countStartRecords(start);
    this.#results = (carry?.next?.recent ?? []).map((stamp) => ({ stamp, after: 0 }));
    const { usage, modelCalls, toolCalls } = carry ?? NO_TOTALS;
    this.#totals = { usage, modelCalls, toolCalls };
    this.#questions = unknownOf(carry?.pending ?? []);
    this.#started = carry?.started ?? threads?.length ?? 0;
    // Only the activities check the run, since this code must replay the events before a reset.
    const { originalExecutionRunId: runId } = workflowInfo();
    this.#run = { runId, ...(carry?.isReset && { isReset: true }) };
  }

  get run(): RunGuard {
    return { ...this.#run, deadline: this.#deadline() };
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

  /** How many records the log has. */
  get ordinal(): number {
    return this.#ordinal;
  }

  /** What the turn has used. */
  get totals(): TurnTotals {
    return this.#totals;
  }

  get progress(): Pick<TurnContinuation, 'ordinal' | 'started' | keyof TurnTotals> {
    return { ordinal: this.#ordinal, ...this.#totals, ...(this.#started > 0 && { started: this.#started }) };
  }

  /** Counts the records of a result or, without a result, the `failureRecords` that the projection adds. */
  count(result: (Appended & Pick<CallModelResult, 'budget'>) | undefined, failureRecords = 0): void {
    const records = result?.records.length ?? failureRecords;
    // No worker caches what the projection adds: with an empty stamp the next model call reads it from the history.
    if (result || records > 0) this.#results.push({ stamp: result?.stamp ?? '', after: this.#ordinal });
    this.#ordinal += records;
    if (result?.budget) this.actions.budget.sharedReached(result.budget);
    for (const record of result?.records ?? []) {
      this.actions.add(record, result?.stamp);
      this.#totals = addRecord(this.#totals, record);
      if (record.kind === 'mcp.auth_required' && this.actions.waits) this.#onSignIn();
    }
  }

  /** Counts the records that the projection adds for a model call whose activity has failed. */
  countFailedCall(input: CallModelInput): void {
    this.count(undefined, countFailureRecords('callModel', input));
    this.#totals = addFailedCall(this.#totals);
    this.actions.budget.callFailed(input.threadId);
  }

  /** The stamps of the results that came after the log had `ordinal` records. */
  stampsSince(ordinal: number): string[] {
    const first = this.#results.findLastIndex(({ after }) => after < ordinal) + 1;
    return this.#results.slice(first).map(({ stamp }) => stamp);
  }

  /** Reserves the sub-agents that a thread's next message may start, so that parallel threads keep the turn's limit. */
  reserve(depth: number): number {
    const count = startable(depth, this.#started);
    this.#started += count;
    return count;
  }

  /** Returns what a message has not used of its reservation. */
  unreserve(count: number): void {
    this.#started -= count;
  }

  /**
   * Reserves the question that a call becomes if its outcome is unknown: with too many, the model is told the outcome
   * instead. Decided before the call runs, so that a reader of the history knows it.
   */
  reserveQuestion(): boolean {
    if (this.start.onUnknown !== 'ask' || this.#questions + unknownOf(this.actions.open) >= MAX_ASKING) return false;
    this.#questions += 1;
    return true;
  }

  /** The call has ended. One that is asked about is among the open ones of a turn that waits. */
  releaseQuestion(isAsked: boolean): void {
    if (!isAsked || this.actions.waits) this.#questions -= 1;
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

function unknownOf(calls: PendingCall[]): number {
  return calls.filter(({ unknownOutcome }) => unknownOutcome !== undefined).length;
}
