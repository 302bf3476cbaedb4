import { AnswerLimits } from './answer-limits.ts';
import { isRequester, isShown, mayAnswer, withRequesters } from './deciders.ts';
import { Given } from './given.ts';
import type { TurnStart } from './history.ts';
import { firstRefusal, refuseAnswer } from './input-rules.ts';
import { Pauses, type PausesState } from './pauses.ts';
import { TurnBudget, type TurnBudgetState } from './turn-budget.ts';
import { MAX_UNREAD, Steering, type SteerCommand, type SteeringState } from './steering.ts';
import {
  ROOT_THREAD,
  type AnswerLimit,
  type AuthRequired,
  type ModelMessage,
  type PauseReason,
  type PendingCall,
  type ToolDecided,
  type TurnError,
  type UnsequencedRecord,
  type WithoutId,
} from './records.ts';
import type { Subject } from './subject.ts';
import {
  actionsRequired,
  callName,
  clientResponse,
  denial,
  hasBegun,
  hasNoResult,
  isAnswerable,
  openCallsOf,
  toolResponse,
  type CallKey,
} from './tool-records.ts';
import {
  isAsked,
  isUnanswered,
  isWaitedFor,
  isAnyActive,
  behindWaiting,
  hasBeenAsked,
  resumedCall,
  remainingOf,
  expiresAt,
  escalatesAt,
  decided,
  type AskedCall,
  type TrackedCall,
} from './tracked-call.ts';
import type {
  Answer,
  AnswerCommand,
  ForceCommand,
  PauseCommand,
  TurnCommand,
  TurnEvent,
  Verdict,
} from './turn-command.ts';
import { RememberedDecisions, ruleFor, type RememberedDecisionsState } from './remembered-decisions.ts';
import { TurnDelegations, type DelegatedCall, type TurnDelegationsState } from './turn-delegations.ts';
import { TurnRefresh, type TurnRefreshState } from './turn-refresh.ts';
import { TurnSignIns, type TurnSignInsState } from './turn-sign-ins.ts';
import { hasVoted, isRepeated, withVote } from './votes.ts';

/** What a run of a turn passes on when it continues as new. */
export interface TurnActionsState {
  threads: [threadId: string, calls: [toolCallId: string, call: TrackedCall][]][];
  pauses: PausesState;
  steering: SteeringState;
  given?: string[];
  isForced?: true;
  limit?: AnswerLimit;
  expiresAt?: number;
  signIns: TurnSignInsState;
  refresh?: TurnRefreshState;
  remembered?: RememberedDecisionsState;
  delegations?: TurnDelegationsState;
  budget?: TurnBudgetState;
}

/** How many calls may wait for an answer of the user at once: one event has all of their questions. */
export const MAX_ASKING = 32;

/** Whether the limit holds for a call: how many outcomes are unknown is bounded elsewhere, and approvals are not. */
export function isLimited({ needs, unknownOutcome }: PendingCall): boolean {
  return needs === 'response' && unknownOutcome === undefined;
}

/** What the model reads of a call that waited when an answer was forced. */
const NOT_AWAITED = 'This tool call was not executed: the user asked for an answer before it was decided.';

/** The pauses of a turn that has nothing to do. */
const IDLE_REASONS = ['action', 'sign_in', 'delegation'] as const;

interface TaskEnd {
  records: UnsequencedRecord[];
  /** By the ids of the commands. */
  verdicts: Map<string, Verdict>;
  /** By the ids of accepted commands: the calls whose answers the same subjects had given before. */
  repeated: Map<string, CallKey[]>;
}

/**
 * What people do to a running turn: the calls that wait for a person or a client (`pause: "wait"`), and for any turn its
 * pauses and the messages that it gets, as a state machine without time and I/O of its own. The workflow runs it to know
 * which calls may run, and the projection to make the records of the commands, so both get the same state from the same
 * history. Everything that is not an activity's result happens at the end of a workflow task, in this order:
 *
 * 1. the results of the task's activities: `add`;
 * 2. `endTask`: requests for the answers that the results require, then the commands in the order of the history, then
 *    what the time requires (expiry, escalation), then whether the turn is paused.
 *
 * The end of the task is the first moment whose time both know: `now` is the start of the task, which is the workflow's
 * `Date.now()`.
 */
export class TurnActions {
  /** Whether the turn waits for answers. Otherwise it ends when it needs some, and accepts none. */
  readonly waits: boolean;
  readonly #turnId: string;
  /** Live threads; one without calls is calling its model. */
  readonly #threads: Map<string, Map<string, TrackedCall>>;
  readonly #pauses: Pauses;
  readonly steering: Steering;
  readonly #given: Given;
  /** It is about to end: it asks for nothing more, and waits for nothing. */
  #isCancelled = false;
  #isForced: boolean;
  readonly #signIns: TurnSignIns;
  readonly #refresh: TurnRefresh;
  readonly #remembered: RememberedDecisions;
  readonly #delegations: TurnDelegations;
  readonly budget: TurnBudget;
  readonly limits: AnswerLimits;
  readonly #failsWithTools: boolean;
  /** A call of the root agent has no result of its tool. A turn that fails by it never continues as new. */
  #lacksResult = false;
  readonly #answerSeconds: number | undefined;
  /** When the turn ends because of the answers that it waits for now: milliseconds since 1970. */
  #expiresAt: number | undefined;
  #failure: Pick<TurnError, 'message' | 'code'> | undefined;

  constructor(start: TurnStart) {
    const { turnId, pause, carry } = start;
    this.waits = pause === 'wait';
    this.#turnId = turnId;
    const { threads = [], pauses, steering, given, signIns, refresh, remembered, delegations } = carry?.actions ?? {};
    // Copies, since several readers may have the same start.
    const copies = (calls: [string, TrackedCall][]) =>
      calls.map(([id, call]): [string, TrackedCall] => [
        id,
        { ...call, ...begunOf(call.pending), votes: [...call.votes] },
      ]);
    this.#threads = new Map(threads.map(([id, calls]) => [id, new Map(copies(calls))]));
    this.#resume(start);
    this.#pauses = new Pauses(pauses);
    this.steering = new Steering(steering);
    this.#given = new Given(given);
    this.#isForced = carry?.actions?.isForced === true;
    this.#failsWithTools = start.failsWithTools === true;
    this.#answerSeconds = start.limits.actionSeconds;
    this.#expiresAt = carry?.actions?.expiresAt;
    this.#signIns = new TurnSignIns(signIns);
    this.#refresh = new TurnRefresh(refresh);
    this.#remembered = new RememberedDecisions(remembered);
    this.#delegations = new TurnDelegations(delegations);
    for (const key of this.delegated) {
      const call = this.#find(key);
      if (call) call.hasBegun = true;
    }
    this.budget = new TurnBudget({ start, pauses: this.#pauses, steering: this.steering });
    this.limits = new AnswerLimits({ start, budget: this.budget });
  }

  get state(): TurnActionsState {
    const budget = this.budget.state;
    const limit = this.limits.reached;
    const delegations = this.#delegations.state;
    const refresh = this.#refresh.state;
    const remembered = this.#remembered.state;
    const given = this.#given.state;
    return {
      // A turn that ends when it needs answers has its open calls in `Waiting`.
      threads: this.waits ? [...this.#threads].map(([id, calls]) => [id, [...calls]]) : [],
      pauses: this.#pauses.state,
      steering: this.steering.state,
      ...(given.length > 0 && { given }),
      ...(this.#isForced && { isForced: true }),
      ...(limit && { limit }),
      ...(this.#expiresAt !== undefined && { expiresAt: this.#expiresAt }),
      signIns: this.#signIns.state,
      ...(refresh && { refresh }),
      ...(remembered.length > 0 && { remembered }),
      ...(delegations.length > 0 && { delegations }),
      ...(budget && { budget }),
    };
  }

  /** Why the turn is paused, according to its log. */
  get pauses(): PauseReason[] {
    return this.#pauses.reasons;
  }

  get isPaused(): boolean {
    return this.pauses.length > 0;
  }

  /** Whether no thread may begin a model call or a tool call. */
  get isHeld(): boolean {
    return this.#isPausedByRequest || this.budget.isHolding;
  }

  get #isPausedByRequest(): boolean {
    return this.#pauses.has('requested');
  }

  /** Whether a user has asked for the answer: the model calls that begin now are to answer, without tools. */
  get isForced(): boolean {
    return this.#isForced;
  }

  /** How long the turn was paused in all, up to the last time it was resumed. */
  get waitedMs(): number {
    return this.#pauses.waitedMs;
  }

  /** How long the turn was paused in all until `now`, in milliseconds since 1970. */
  waitedUntil(now: number): number {
    return this.#pauses.waitedUntil(now);
  }

  /** Why the turn must end: an approval has expired whose policy says so, or the turn has waited for too long. */
  get failure(): Pick<TurnError, 'message' | 'code'> | undefined {
    return this.#failure;
  }

  /** Whether the turn is to end because a call of the root agent has no result of its tool: it begins no other call. */
  get hasFailed(): boolean {
    return this.#failsWithTools && this.#lacksResult;
  }

  /** Whether a thread cannot call its model before sign-ins to its servers have ended, or toolkits were refreshed. */
  isModelAwaited(threadId: string): boolean {
    return this.#signIns.isWaiting(threadId) || this.#needsRefresh(threadId);
  }

  #needsRefresh(threadId: string): boolean {
    return threadId === ROOT_THREAD && this.#refresh.isPending && !this.hasFailed;
  }

  /** The calls that wait for an answer or a sign-in, and since when: milliseconds since 1970, for answers. */
  get waiting(): { call: PendingCall; askedAt: number; isEscalated: boolean }[] {
    return this.#all('waiting').map(({ pending, askedAt = 0, isEscalated = false }) => ({
      call: pending,
      askedAt,
      isEscalated,
    }));
  }

  /** The calls that wait, or were approved, and have no result. */
  get open(): PendingCall[] {
    return [...this.#threads.values()].flatMap((calls) =>
      [...calls.values()].flatMap(({ state, pending }) => (state !== 'settled' && pending ? [pending] : [])),
    );
  }

  /** The calls on which other agents work, in sessions of their own. */
  get delegated(): DelegatedCall[] {
    return this.#delegations.started;
  }

  /** The calls of a thread that have no result, in the order of their message. */
  unsettled(threadId: string): { toolCallId: string; call: TrackedCall }[] {
    return [...(this.#threads.get(threadId) ?? [])].flatMap(([toolCallId, call]) =>
      call.state === 'settled' ? [] : [{ toolCallId, call }],
    );
  }

  /**
   * A running call waits for an answer. False if too many calls wait: the call of a server that asks the user continues
   * with the answer that the question was cancelled. How many outcomes may be unknown is decided before the calls run.
   */
  ask(pending: PendingCall): boolean {
    const { threadId, toolCallId, elicitation } = pending;
    const calls = this.#callsOf(threadId);
    const before = calls.get(toolCallId);
    if (isLimited(pending) && this.#asked(threadId) >= MAX_ASKING) {
      if (before && elicitation) Object.assign(before, { cancelled: elicitation, isRunning: false });
      return false;
    }
    const rule = pending.isAskedAgain && before?.rule;
    const begun = pending.isAskedAgain
      ? begunOf(pending)
      : { hasBegun: before?.hasBegun === true, edited: before?.edited };
    calls.set(toolCallId, { state: 'new', pending, ...begun, ...(rule !== undefined && { rule }), votes: [] });
    return true;
  }

  /** How many calls wait, of those that a limit bounds with the thread's. */
  #asked(threadId: string): number {
    if (this.waits) return this.open.length;
    return this.unsettled(threadId).filter(({ call }) => isUnanswered(call) && hasBeenAsked(call)).length;
  }

  /** The calls of a thread, which is tracked from now on. */
  #callsOf(threadId: string): Map<string, TrackedCall> {
    const calls = this.#threads.get(threadId) ?? new Map<string, TrackedCall>();
    this.#threads.set(threadId, calls);
    return calls;
  }

  /** A call has ended without a result of its tool. */
  lackResult({ threadId }: Pick<CallKey, 'threadId'>): void {
    this.#lacksResult ||= threadId === ROOT_THREAD;
  }

  /** Adds a record of an activity's result; `stamp` is that of the result, which an activity that failed has not. */
  add(record: UnsequencedRecord, stamp = ''): void {
    this.budget.add(record);
    if (record.kind === 'model.message') {
      this.#addMessage(record, stamp);
    } else if (record.kind === 'tool.response') {
      this.ended(record);
      if (hasNoResult(record)) this.lackResult(record);
    } else if (record.kind === 'toolkit.refresh_required') {
      if (this.waits && !this.#isForced) this.#refresh.require(record);
    } else if (record.kind === 'mcp.auth_required') {
      this.#needSignIn(record);
    } else if (record.kind === 'thread.created') {
      this.#threads.set(record.thread.threadId, new Map());
    } else if (record.kind === 'thread.done') {
      this.#threads.delete(record.threadId);
      this.#signIns.threadEnded(record.threadId);
    }
  }

  #addMessage(message: ModelMessage, stamp: string): void {
    const { threadId, toolCalls } = message;
    const calls = new Map<string, TrackedCall>();
    const open = new Map(
      openCallsOf(message, { turnId: this.#turnId, stamp }).map((call) => [call.source.index, call]),
    );
    // Those without results are closed in the order of the message.
    for (const [index, call] of toolCalls.entries()) {
      const { id: toolCallId, route } = call;
      if (route.to === 'thread') calls.set(toolCallId, { state: 'delegated', votes: [] });
      if (route.to === 'session') this.#delegations.add({ threadId, toolCallId, sessionId: route.sessionId });
      const { source, pending } = open.get(index) ?? {};
      if (!source) continue;
      const rule = this.waits && pending ? ruleFor(call, pending) : undefined;
      const asked = pending && { pending, ...(rule !== undefined && { rule }) };
      calls.set(toolCallId, { ...(asked ? { state: 'new', ...asked } : { state: 'running', source }), votes: [] });
    }
    this.#threads.set(threadId, calls);
  }

  /** Without calls it is the thread's model that was not called. */
  #needSignIn({ threadId, servers, calls }: WithoutId<AuthRequired>): void {
    const tracked = this.#callsOf(threadId);
    if (calls.length === 0 && this.waits && !this.#isForced) this.#signIns.require({ threadId, servers });
    for (const call of calls) {
      const before = tracked.get(call.toolCallId);
      // It was to run again: a sign-in does not make its first outcome known.
      const unknownOutcome = before?.pending?.unknownOutcome ?? before?.resumed?.unknownOutcome;
      const pending = unknownOutcome === undefined ? call : { ...call, unknownOutcome };
      const asked = this.#isForced ? 'new' : 'waiting';
      const state = this.#signIns.hasEnded(pending.signInId) ? 'allowed' : asked;
      tracked.set(pending.toolCallId, { state, pending, ...begunOf(pending), votes: [] });
    }
  }

  /** What was open at the end of the previous run or turn. */
  #resume({ carry, threads = [], resumes, input }: TurnStart): void {
    const track = ({ threadId, toolCallId }: CallKey, call: Omit<TrackedCall, 'votes'>): void => {
      this.#callsOf(threadId).set(toolCallId, { ...call, votes: [] });
    };
    for (const { threadId, parent } of carry ? (carry.threads ?? []) : threads) {
      if (!this.#find(parent)) track(parent, { state: 'delegated' });
      this.#callsOf(threadId);
    }
    for (const call of carry ? (carry.pending ?? []) : resumes) {
      const { source } = call;
      const begun = begunOf(call);
      // What waits at the end of a run for a sign-in is tried again: only its own requests are in the log of a run.
      const resumed = carry ? (isAnswerable(call) ? undefined : call) : resumedCall(call, input);
      if (resumed) track(call, { state: 'running', source, resumed, ...begun });
      else if (carry) track(call, { state: 'new', pending: call, ...begun });
    }
  }

  /** The activity of a call is scheduled. False if the call is not open. */
  scheduled({ edited, ...key }: CallKey & Pick<PendingCall, 'edited'>): boolean {
    const call = this.#find(key);
    if (!call || call.state === 'settled') return false;
    call.hasBegun = true;
    call.isRunning = true;
    call.edited = edited ?? call.edited;
    return true;
  }

  /** Another agent has got the call as its task. */
  delegate(key: CallKey): void {
    const call = this.#find(key);
    if (call && this.#delegations.start(key)) Object.assign(call, { state: 'delegated', isRunning: false });
  }

  /** A call has a result. */
  ended(key: CallKey): void {
    const call = this.#find(key);
    if (call) Object.assign(call, { state: 'settled', isRunning: false });
    this.#delegations.ended(key);
  }

  /** Whether the end of the current task records something before which no thread may begin a call. */
  mustRecord(now: number): boolean {
    return this.steering.mustRecord || (!this.#isCancelled && this.budget.isDue(now));
  }

  /** Whether the end of a task without commands adds records. */
  isUnsettled(now: number): boolean {
    if (this.mustRecord(now)) return true;
    if (!this.waits || this.#threads.size === 0 || this.#isCancelled) return false;
    const due = this.nextDue;
    const waitsFor = this.#waitsFor;
    const isOtherwisePaused = IDLE_REASONS.some((reason) => this.#pauses.has(reason) !== (reason === waitsFor));
    const hasNews = this.#delegations.mustRecord || this.#all('new').length > 0;
    return (due !== undefined && due <= now) || isOtherwisePaused || hasNews;
  }

  /** When a call expires or is escalated next, or the turn ends because it waits: milliseconds since 1970. */
  get nextDue(): number | undefined {
    if (this.#isCancelled) return undefined;
    const times = this.#all('waiting').flatMap((call) => [expiresAt(call), escalatesAt(call)]);
    const due = Math.min(...[...times, this.#expiresAt].filter((time) => time !== undefined));
    return due === Infinity ? undefined : due;
  }

  /** Ends a workflow task. Returns the records that follow those of its activities. */
  endTask(commands: readonly TurnEvent[], now: number): TaskEnd {
    const asked = this.#isForced ? this.#giveUpWaits(now) : this.#ask(now);
    const records = [...(this.#isCancelled ? [] : asked), ...this.steering.record()];
    const verdicts = new Map<string, Verdict>();
    const repeated: TaskEnd['repeated'] = new Map();
    let [by, raisedBy]: (Subject | undefined)[] = [];
    for (const command of commands) {
      if (command.type === 'cancelled') {
        this.#isCancelled = true;
        continue;
      }
      const verdict = this.#refuse(command, now);
      verdicts.set(command.id, verdict);
      if (verdict) continue;
      if (command.type === 'sign_in') {
        this.#endSignIn(command.signInId);
        by = command.by ?? by;
      } else if (command.type === 'delegation') {
        this.#delegations.end(command);
      } else if (command.type === 'answer') {
        const { answers, refreshes = [], subject } = command;
        const isRepetition = this.isRepetition(command);
        repeated.set(
          command.id,
          answers.filter((answer) => isRepetition || this.#isRepeated(answer, subject)),
        );
        if (isRepetition) continue;
        this.#given.add(command);
        const accepted = [
          ...answers.flatMap((answer) => this.#answer(answer, subject, now)),
          ...this.#refresh.accept(refreshes, subject, isoTime(now)),
        ];
        if (accepted.length > 0) by = command.subject;
        records.push(...accepted);
      } else {
        this.#control(command, now);
        if (command.type === 'force_answer') by = command.subject;
        if (command.type === 'resume') raisedBy = command.subject;
        records.push(...this.steering.record());
      }
    }
    if (!this.#isCancelled) {
      records.push(...this.#recordDelegations(now), ...this.#advance(now), ...this.#pauseOrResume(now, by));
      records.push(...this.budget.endTask(now, raisedBy));
    }
    return { records, verdicts, repeated };
  }

  /** A repetition changes nothing. */
  #endSignIn(signInId: string): void {
    this.#signIns.end(signInId);
    for (const call of this.#all('waiting')) if (call.pending.signInId === signInId) call.state = 'allowed';
  }

  #recordDelegations(now: number): UnsequencedRecord[] {
    const records = this.#delegations.record(isoTime(now));
    for (const record of records) {
      this.ended(record);
      this.budget.add(record);
    }
    return records;
  }

  #control(command: SteerCommand | ForceCommand | PauseCommand, now: number): void {
    const { type, subject } = command;
    if (type === 'steer') {
      if (!this.isRepetition(command)) this.steering.accept(command, isoTime(now));
      this.#given.add(command);
      return;
    }
    if (type === 'force_answer') this.steering.add(this.#force(now));
    else if (type === 'resume') this.budget.raise(command);
    this.steering.add(this.#pauses.set('requested', type === 'pause', now, subject));
  }

  #force(now: number): UnsequencedRecord[] {
    this.#isForced = true;
    this.#signIns.giveUp();
    this.#refresh.giveUp();
    return this.#giveUpWaits(now);
  }

  /** A turn that is to answer waits for nothing, also not for what a call that ran before it was forced asks for. */
  #giveUpWaits(now: number): UnsequencedRecord[] {
    if (!this.waits) return [];
    const waiting = [...this.#all('new'), ...this.#all('waiting')];
    const behind = [...this.#threads].flatMap(([threadId, calls]) =>
      behindWaiting(calls).map(([toolCallId, call]) => ({ call, key: { ...call.pending, threadId, toolCallId } })),
    );
    for (const call of [...waiting, ...behind.map((one) => one.call)]) call.state = 'settled';
    const records = [
      ...waiting.map(({ pending }) =>
        hasBegun(pending)
          ? toolResponse(pending, 'unknown_outcome', isoTime(now), pending.unknownOutcome)
          : toolResponse(pending, 'cancelled', isoTime(now), NOT_AWAITED),
      ),
      ...behind.map(({ key }) => toolResponse(key, 'cancelled', isoTime(now), NOT_AWAITED)),
    ];
    for (const record of records) this.budget.add(record);
    return records;
  }

  #refuse(command: TurnCommand, now: number): Verdict {
    const verdict = this.refuse(command);
    if (verdict || (command.type !== 'resume' && command.type !== 'force_answer')) return verdict;
    return this.budget.refuse(command.type === 'resume' ? command : undefined, now);
  }

  /** Why the turn refuses a command now, apart from its budget. */
  refuse(command: TurnCommand): Verdict {
    if (command.type === 'answer') return this.isRepetition(command) ? undefined : this.#refuseAnswers(command);
    if (this.#isCancelled) return { code: 'nothing_running', message: 'the turn was cancelled' };
    if (command.type !== 'steer' || this.isRepetition(command) || this.steering.hasRoomFor(command)) return undefined;
    const message = `the turn has not read ${MAX_UNREAD} messages yet: wait until it calls its model`;
    return { code: 'too_many_messages', message };
  }

  /**
   * Whether a command says nothing new: the turn is in the state that it asks for, or was given all of it before. A call
   * may ask again, and be given an equal answer: a command whose calls all wait for it is new.
   */
  isRepetition(command: PauseCommand | ForceCommand | SteerCommand | AnswerCommand): boolean {
    if (command.type === 'pause') return this.#isPausedByRequest;
    if (command.type === 'force_answer') return this.#isForced && !this.isHeld;
    if (command.type === 'steer') return this.#given.has(command);
    if (command.type !== 'answer') return !this.isHeld && this.budget.hasRaised(command.budget);
    if (!this.#given.has(command)) return false;
    const isAwaited = command.answers.every((answer) => isAwaitedBy(command, this.#find(answer)));
    return command.isRepetition === true || !isAwaited || this.#refuseAnswers(command) !== undefined;
  }

  #refuseAnswers(command: AnswerCommand): Verdict {
    const { answers, refreshes } = command;
    const hasCalls = this.#all('waiting').length > 0 || answers.some((answer) => this.#find(answer)?.pending);
    if (!this.waits || (!hasCalls && !refreshes)) {
      return { code: 'nothing_pending', message: 'no tool call of the running turn waits for an answer' };
    }
    const refusal = firstRefusal(answers, (answer, isAnswered) =>
      isAnswered
        ? { code: 'call_answered_twice', message: `${callName(answer)} is answered twice` }
        : this.#refuseAnswer(answer, command),
    );
    if (refusal || !refreshes) return refusal;
    if (!command.mayRespond) return { code: 'not_an_approver', message: 'you may not refresh toolkits' };
    return this.#refresh.refuse(refreshes);
  }

  #refuseAnswer(answer: Answer, caller: AnswerCommand): Verdict {
    const call = this.#find(answer);
    const what = callName(answer);
    // A repetition stays accepted, also when others have decided in the meantime.
    if (this.#isRepeated(answer, caller.subject)) return undefined;
    const decidable = isAsked(call) && { ...call, pending: withRequesters(call.pending, this.steering.authors) };
    if (!isAsked(call) || !decidable || !isShown(decidable, caller)) {
      return { code: 'call_not_pending', message: `${what} does not wait for an answer` };
    }
    if (call.pending.needs === 'sign_in') {
      return { code: 'call_not_pending', message: `${what} waits for a sign-in, which no answer replaces` };
    }
    const refusal = refuseAnswer(call.pending, answer);
    if (refusal) return refusal;
    if (!mayAnswer(decidable, answer, caller)) {
      const reason = isRequester(decidable, caller)
        ? 'its policy excludes those who have asked for it'
        : 'its approvers may';
      return { code: 'not_an_approver', message: `you may not answer ${what}: ${reason}` };
    }
    if (answer.type === 'user.tool_approval' && answer.remembers && call.rule === undefined) {
      return {
        code: 'remember_not_allowed',
        message: `no decision on ${what} is remembered: its policy says who decides each call`,
      };
    }
    if (hasVoted(call.votes, caller.subject)) {
      return { code: 'already_decided', message: `you have already answered ${what}, differently` };
    }
    if (!isAwaitedBy(caller, call)) return { code: 'already_decided', message: `${what} was already decided` };
    return undefined;
  }

  /** Applies an answer that `refuse` accepts. */
  #answer(answer: Answer, by: Subject, now: number): UnsequencedRecord[] {
    const call = this.#find(answer);
    if (!isAsked(call) || call.state !== 'waiting' || this.#isRepeated(answer, by)) return [];
    const at = isoTime(now);
    const { pending } = call;
    call.votes = withVote(call.votes, by, answer);
    if (answer.type === 'user.tool_response' && pending.elicitation) {
      call.state = 'allowed';
      call.answer = answer.content;
      return [decided(pending, 'respond', { at, by, remaining: 0 })];
    }
    if (answer.type === 'user.tool_response') {
      call.state = 'settled';
      const response = clientResponse(pending, answer, { at, by });
      if (hasNoResult(response)) this.lackResult(response);
      return [response];
    }
    const { approval, remembers } = answer;
    const remembered = remembers && { isRemembered: remembers };
    if (remembers && call.rule !== undefined) {
      const { status } = approval;
      const reason = status === 'deny' && approval.reason;
      this.#remembered.add(call.rule, { status, by, ...(reason && { reason }) });
    }
    if (approval.status === 'deny') return this.#deny(call, approval, { at, by, ...remembered });
    const { edited } = approval;
    const remaining = remainingOf(call);
    if (remaining === 0) {
      call.state = 'allowed';
      call.pending = { ...pending, ...(edited && { edited }) };
    }
    return [decided(pending, 'allow', { at, by, remaining, ...(edited && { edited }), ...remembered })];
  }

  #deny(
    call: AskedCall,
    { reason }: { reason?: string },
    vote: Pick<ToolDecided, 'at' | 'by' | 'isRemembered'>,
  ): UnsequencedRecord[] {
    call.state = 'settled';
    const { pending } = call;
    return [
      decided(pending, 'deny', { ...vote, remaining: 0, ...(reason && { reason }) }),
      denial(pending, reason, vote.at),
    ];
  }

  /** Decides the task's calls for which an earlier decision holds. */
  #decideAsBefore(at: string): UnsequencedRecord[] {
    return this.#all('new').flatMap((call) => {
      // What was decided for all calls of a tool was decided before the state at its server was lost.
      const decision = call.pending.isAskedAgain ? undefined : this.#remembered.find(call.rule);
      if (!decision) return [];
      const vote = { at, by: decision.by, isRemembered: true as const };
      if (decision.status === 'deny') return this.#deny(call, decision, vote);
      call.state = 'allowed';
      return [decided(call.pending, 'allow', { ...vote, remaining: 0 })];
    });
  }

  /** The requests for the answers that the task's messages require. */
  #ask(now: number): UnsequencedRecord[] {
    const records = this.#decideAsBefore(isoTime(now));
    const calls = this.#all('new');
    for (const call of calls) {
      const pending = withRequesters(call.pending, this.steering.authors);
      Object.assign(call, { state: 'waiting', askedAt: now, pending });
    }
    const pending = calls.map((call) => call.pending);
    return [...records, ...actionsRequired(pending, isoTime(now))];
  }

  #advance(now: number): UnsequencedRecord[] {
    const at = isoTime(now);
    const records: UnsequencedRecord[] = [];
    for (const call of this.#all('waiting')) {
      const { pending } = call;
      const [expiry = Infinity, escalation = Infinity] = [expiresAt(call), escalatesAt(call)];
      if (escalation <= now && escalation < expiry) {
        call.isEscalated = true;
        records.push(decided(pending, 'escalated', { at, remaining: remainingOf(call) }));
      }
      if (expiry <= now) records.push(...this.#expire(call, at));
    }
    return records;
  }

  #expire(call: AskedCall, at: string): UnsequencedRecord[] {
    const { pending } = call;
    const expired = decided(pending, 'expired', { at, remaining: 0 });
    const { onExpiry } = pending.policy ?? {};
    if (onExpiry === 'allow') {
      call.state = 'allowed';
      return [expired];
    }
    call.state = 'settled';
    if (onExpiry === 'end') {
      this.#failure ??= { message: `The approval of tool call ${pending.toolCallId} expired.` };
    }
    return [expired, toolResponse(pending, 'expired', at)];
  }

  /** Begins or ends the pauses of a turn that has nothing to do. `by`: whose command has given it something to do. */
  #pauseOrResume(now: number, by: Subject | undefined): UnsequencedRecord[] {
    const waitsFor = this.#waitsFor;
    this.#limitWait(waitsFor, now);
    return IDLE_REASONS.flatMap((reason) => {
      const isPaused = reason === waitsFor;
      return this.#pauses.set(reason, isPaused, now, isPaused ? undefined : by);
    });
  }

  /** Each pause for people has the same limit. An answer that arrives with its end still counts. */
  #limitWait(waitsFor: (typeof IDLE_REASONS)[number] | undefined, now: number): void {
    if (this.#answerSeconds === undefined) return;
    if (waitsFor === undefined || waitsFor === 'delegation') {
      this.#expiresAt = undefined;
    } else if (!this.#pauses.has(waitsFor)) {
      this.#expiresAt = now + this.#answerSeconds * 1000;
    } else if (this.#expiresAt !== undefined && this.#expiresAt <= now) {
      this.#expiresAt = undefined;
      const message = `The turn has waited for answers for ${this.#answerSeconds} s, which is its limit.`;
      this.#failure ??= { message, code: 'action_expired' };
    }
  }

  /** What the turn waits for, if calls or threads wait and no thread does anything else. */
  get #waitsFor(): (typeof IDLE_REASONS)[number] | undefined {
    if (!this.waits) return undefined;
    const threads = [...this.#threads].map(([id, calls]) => ({
      needsSignIn: this.#signIns.isWaiting(id),
      // What others work on comes first, and takes as long as it takes.
      needsRefresh: this.#needsRefresh(id) && ![...calls.values()].some(({ state }) => state === 'delegated'),
      calls: [...calls.values()],
      // What has not begun in a turn that is to end never begins.
      isActive:
        this.hasFailed && id === ROOT_THREAD
          ? [...calls.values()].some(({ isRunning }) => isRunning)
          : isAnyActive([...calls.values()]),
    }));
    const isAwaited = ({ needsSignIn, needsRefresh }: (typeof threads)[number]) => needsSignIn || needsRefresh;
    const needsPeople = threads.some((thread) => isAwaited(thread) || thread.calls.some(isUnanswered));
    const isIdle =
      (needsPeople || this.delegated.length > 0) &&
      threads.every((thread) => (isAwaited(thread) || thread.calls.some(isWaitedFor)) && !thread.isActive);
    if (!isIdle) return undefined;
    if (!needsPeople) return 'delegation';
    const needsAnswers =
      threads.some(({ needsRefresh }) => needsRefresh) ||
      this.#all('waiting').some(({ pending }) => pending.needs !== 'sign_in');
    return needsAnswers ? 'action' : 'sign_in';
  }

  #isRepeated(answer: Answer, by: Subject): boolean {
    return isRepeated(this.#find(answer)?.votes ?? [], by, answer);
  }

  #find(key: CallKey): TrackedCall | undefined {
    return this.#threads.get(key.threadId)?.get(key.toolCallId);
  }

  /** A turn that ends when it needs answers asks with its end. */
  #all(state: 'new' | 'waiting'): AskedCall[] {
    if (!this.waits) return [];
    const all = [...this.#threads.values()].flatMap((calls) => [...calls.values()]);
    return all.filter(isAsked).filter((call) => call.state === state);
  }
}

/** Whether a call waits, and did so when its answer was sent. */
function isAwaitedBy({ askedUntil = Infinity }: AnswerCommand, call: TrackedCall | undefined): boolean {
  return call?.state === 'waiting' && (call.askedAt ?? 0) <= askedUntil;
}

/** What an earlier run or turn has told of a call. */
function begunOf(pending: PendingCall | undefined): Pick<TrackedCall, 'hasBegun' | 'edited'> {
  return pending ? { hasBegun: hasBegun(pending), edited: pending.edited } : { hasBegun: false };
}

function isoTime(now: number): string {
  return new Date(now).toISOString();
}
