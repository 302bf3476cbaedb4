import { ResponseLimits } from './response-limits.ts';
import { callsOfInterrupted, isCode, openCells, readyOfCode, type OpenCell } from './code-threads.ts';
import { askedCall, isCell, isUnanswered, readyOf, settleCalls, type Call } from './call.ts';
import { RecentCommands } from './recent-commands.ts';
import type { TurnStart } from './history.ts';
import { idleReason, IdlePauses, type IdleReason } from './idle-pauses.ts';
import { Pauses } from './pauses.ts';
import { Questions } from './questions.ts';
import type { WithoutId } from './records/base.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import type { PendingCall } from './records/pending.ts';
import type { AuthRequired } from './records/servers.ts';
import { ROOT_THREAD } from './records/threads.ts';
import type { ResponseLimit, TurnError } from './records/turn.ts';
import { isForClient, openTurnState, type OpenTurnState } from './session-state.ts';
import { MAX_UNREAD, Steering, type SteerCommand } from './steering.ts';
import type { Subject } from './subject.ts';
import { isoTime } from './text.ts';
import {
  carriedThreads,
  madeCalls,
  addThread,
  threadsOf,
  type CarriedThread,
  type Thread,
  type Threads,
} from './threads.ts';
import { hasNoResult, type CallKey } from './tool-records.ts';
import { startsTask, withRoom } from './tasks.ts';
import { TurnBudget } from './turn-budget.ts';
import type { AnswerCommand, CommandEvent, ForceCommand, PauseCommand, TurnCommand, Verdict } from './turn-command.ts';
import { OpenDelegations } from './delegations.ts';
import { ToolkitRefreshes } from './toolkit-refreshes.ts';
import { AwaitedSignIns } from './awaited-sign-ins.ts';

/** What a run of a turn passes on when it continues as new. */
export interface TurnActionsState {
  threads: CarriedThread[];
  pauses: Pauses['state'];
  steering: Steering['state'];
  given?: RecentCommands['state'];
  isForced?: true;
  limit?: ResponseLimit;
  expiresAt?: number;
  signIns: AwaitedSignIns['state'];
  refresh?: NonNullable<ToolkitRefreshes['state']>;
  remembered?: Questions['remembered'];
  delegations?: OpenDelegations['state'];
  budget?: NonNullable<TurnBudget['state']>;
}

interface TaskEnd {
  records: UnsequencedRecord[];
  /** By the ids of the commands. */
  verdicts: Map<string, Verdict>;
  /** By the ids of accepted commands: the calls whose answers the same subjects had given before. */
  repeated: Map<string, CallKey[]>;
}

/**
 * The state machine of a running turn between its activities, without time and I/O of its own: the calls that wait for
 * a person or a client (`pause: "wait"`), and for any turn its pauses, messages and budget. The workflow runs it to
 * decide which calls may run, and every reader to make the records of commands, so both get the same state from the
 * same history. Everything that is not an activity's result happens at the end of a workflow task, in this order:
 *
 * 1. the results of the task's activities: `add`;
 * 2. `endTask`: requests for the answers that the results require, then the commands in the order of the history, then
 *    what the time requires (expiry, escalation), then whether the turn is paused.
 *
 * The end of the task is the first moment whose time both have: `now` is the start of the task, which is the workflow's
 * `Date.now()`.
 */
export class TurnActions {
  /** Whether the turn waits for answers. Otherwise it ends when it needs some, and accepts none. */
  readonly waits: boolean;
  readonly threads: Threads;
  readonly #start: TurnStart;
  /** The calls that wait. */
  readonly questions: Questions;
  /** Why the turn is paused, according to its log. */
  readonly pauses: Pauses;
  readonly #idlePauses: IdlePauses;
  readonly steering: Steering;
  readonly #given: RecentCommands;
  /** The turn is about to end: it asks for nothing more, and waits for nothing. */
  #isCancelled = false;
  #isForced: boolean;
  readonly #signIns: AwaitedSignIns;
  readonly #refresh: ToolkitRefreshes;
  /** The calls on which other agents work, in sessions of their own. */
  readonly delegations: OpenDelegations;
  readonly budget: TurnBudget;
  readonly limits: ResponseLimits;
  /** A call of the root agent has no result of its tool. A turn that fails by it never continues as new. */
  #lacksResult = false;
  /** The first failure. */
  #failure: Pick<TurnError, 'message' | 'code'> | undefined;

  constructor(start: TurnStart) {
    const { pause, carry } = start;
    this.waits = pause === 'wait';
    this.#start = start;
    this.threads = threadsOf(start);
    this.pauses = new Pauses(carry?.pauses);
    const { actionSeconds: limitSeconds } = start.limits;
    this.#idlePauses = new IdlePauses({ pauses: this.pauses, limitSeconds, expiresAt: carry?.expiresAt });
    this.steering = new Steering(carry?.steering);
    this.questions = new Questions({
      threads: this.threads,
      waits: this.waits,
      authors: () => this.steering.authors,
      remembered: carry?.remembered,
    });
    this.#given = new RecentCommands(carry?.given);
    this.#isForced = carry?.isForced === true;
    this.#signIns = new AwaitedSignIns(carry?.signIns);
    this.#refresh = new ToolkitRefreshes(carry?.refresh);
    this.delegations = new OpenDelegations(carry?.delegations);
    this.budget = new TurnBudget({ start, pauses: this.pauses, steering: this.steering });
    this.limits = new ResponseLimits({ start, budget: this.budget });
  }

  get state(): TurnActionsState {
    const budget = this.budget.state;
    const limit = this.limits.reached;
    const delegations = this.delegations.state;
    const refresh = this.#refresh.state;
    const { remembered } = this.questions;
    const given = this.#given.state;
    const { expiresAt } = this.#idlePauses;
    return {
      threads: carriedThreads(this.threads, this.waits),
      pauses: this.pauses.state,
      steering: this.steering.state,
      ...(given.length > 0 && { given }),
      ...(this.#isForced && { isForced: true }),
      ...(limit && { limit }),
      ...(expiresAt !== undefined && { expiresAt }),
      signIns: this.#signIns.state,
      ...(refresh && { refresh }),
      ...(remembered.length > 0 && { remembered }),
      ...(delegations.length > 0 && { delegations }),
      ...(budget && { budget }),
    };
  }

  get openState(): OpenTurnState {
    return openTurnState(this.pauses, this.#refresh.isPending || this.questions.waiting.some(isForClient));
  }

  get isPaused(): boolean {
    return this.pauses.reasons.length > 0;
  }

  /** Whether no thread may begin a model call or a tool call. */
  get isHeld(): boolean {
    return this.#isPausedByRequest || this.budget.isHolding;
  }

  get #isPausedByRequest(): boolean {
    return this.pauses.has('requested');
  }

  /** Whether a user has asked for the answer: the model calls that begin now are to answer, without tools. */
  get isForced(): boolean {
    return this.#isForced;
  }

  /** Why the turn must end: an approval whose policy ends the turn has expired, or the turn has waited for too long. */
  get failure(): Pick<TurnError, 'message' | 'code'> | undefined {
    return this.#failure;
  }

  /** Whether the turn is to end because a call of the root agent has no result of its tool: it begins no other call. */
  get hasFailed(): boolean {
    return this.#start.failsWithTools === true && this.#lacksResult;
  }

  /** Whether code of a thread runs, or waits. */
  runsCode(threadId: string): boolean {
    return this.#cellsOf(threadId).length > 0;
  }

  /** Whether a thread cannot call its model before sign-ins to its servers have ended, or toolkits were refreshed. */
  isModelAwaited(threadId: string): boolean {
    return this.#signIns.isWaiting(threadId) || this.#needsRefresh(threadId);
  }

  #needsRefresh(threadId: string): boolean {
    return threadId === ROOT_THREAD && this.#refresh.isPending && !this.hasFailed;
  }

  /** The calls of a thread that have no result, in the order of their message. */
  unsettled(threadId: string): Call[] {
    return this.#callsOf(threadId).filter(({ state }) => state !== 'settled');
  }

  /** The calls of a thread that run, and those that may begin. A turn that is to fail by a call begins no other. */
  working(threadId: string): { running: Call[]; ready: Call[] } {
    const calls = this.#callsOf(threadId);
    const mayBegin = threadId !== ROOT_THREAD || !this.hasFailed;
    const thread = this.threads.get(threadId);
    const all = thread && isCode(thread) ? readyOfCode(calls) : readyOf(calls);
    const ready = withRoom(all, threadId, { threads: this.threads, limits: this.#start.limits });
    return { running: calls.filter(({ state }) => state === 'running'), ready: mayBegin ? ready : [] };
  }

  #callsOf(threadId: string): Call[] {
    return [...(this.threads.get(threadId)?.calls.values() ?? [])];
  }

  /** A running call waits for an answer. */
  ask(pending: PendingCall): void {
    this.questions.add(pending);
  }

  /** A call has ended without a result of its tool. */
  lackResult({ threadId }: Pick<CallKey, 'threadId'>): void {
    this.#lacksResult ||= threadId === ROOT_THREAD;
  }

  /** Adds a record of an activity's result; `stamp` is the result's; an activity that failed has none. */
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
      addThread(this.threads, record.thread);
    } else if (record.kind === 'thread.done') {
      this.threads.delete(record.threadId);
      this.#signIns.threadEnded(record.threadId);
    }
  }

  #addMessage(message: ModelMessage, stamp: string): void {
    const { threadId, toolCalls } = message;
    const thread = this.threads.get(threadId);
    if (!thread) return;
    for (const { id: toolCallId, route } of toolCalls)
      if (route.to === 'session') this.delegations.add({ threadId, toolCallId, sessionId: route.sessionId });
    const calls = madeCalls(message, { turnId: this.#start.turnId, stamp, waits: this.waits });
    thread.calls = new Map(calls.map((call) => [call.toolCallId, call]));
    // Code that has waited for people may have ended.
    if (isCode(thread)) thread.isConnected = calls.every(({ state }) => state !== 'new');
  }

  /** A record without calls: the thread's model was not called. */
  #needSignIn({ threadId, servers, calls }: WithoutId<AuthRequired>): void {
    if (calls.length === 0 && this.waits && !this.#isForced) this.#signIns.require({ threadId, servers });
    for (const call of calls) {
      // The call was to run again: a sign-in does not reveal its first outcome.
      const unknownOutcome = this.questions.find(call)?.unknownOutcome;
      const asked = this.#isForced ? 'new' : 'waiting';
      const state = this.#signIns.hasEnded(call.signInId) ? 'ready' : asked;
      const pending = unknownOutcome === undefined ? call : { ...call, unknownOutcome };
      this.threads.get(threadId)?.calls.set(call.toolCallId, askedCall(pending, { state }));
    }
  }

  /** The activity of a call is scheduled. False if the call is not open. */
  scheduled({ edited, ...key }: CallKey & Pick<PendingCall, 'edited'>): boolean {
    const call = this.questions.find(key);
    if (!call || call.state === 'settled') return false;
    Object.assign(call, { state: 'running', hasBegun: true, ...(edited && { edited }) });
    return true;
  }

  /** Another agent has got the call as its task. */
  delegate(key: CallKey): void {
    const call = this.questions.find(key);
    if (call && this.delegations.start(key)) Object.assign(call, { state: 'delegated', hasBegun: true });
  }

  /** A call has a result. */
  ended(key: CallKey): void {
    const call = this.questions.find(key);
    if (call) call.state = 'settled';
    this.delegations.ended(key);
  }

  /** Whether the end of the current task records something before which no thread may begin a call. */
  mustRecord(now: number): boolean {
    if (this.steering.mustRecord) return true;
    return (
      !this.#isCancelled && (this.budget.isDue(now) || callsOfInterrupted(this.threads, this.#isForced).length > 0)
    );
  }

  /** Whether the end of a task without commands adds records. */
  isUnsettled(now: number): boolean {
    if (this.mustRecord(now)) return true;
    if (!this.waits || this.#isCancelled) return false;
    const due = this.nextDue;
    const hasNews = this.delegations.mustRecord || this.questions.isAnyNew;
    return (due !== undefined && due <= now) || hasNews || this.#idlePauses.isOutdated(this.#waitsFor);
  }

  /** When a call expires or is escalated next, or the turn ends because it waits: milliseconds since 1970. */
  get nextDue(): number | undefined {
    if (this.#isCancelled) return undefined;
    const due = Math.min(this.questions.nextDue, this.#idlePauses.expiresAt ?? Infinity);
    return due === Infinity ? undefined : due;
  }

  /** Ends a workflow task. Returns the records that follow those of its activities. */
  endTask(commands: readonly CommandEvent[], now: number): TaskEnd {
    const ofInterrupted = this.#isCancelled ? [] : this.#giveUpInterrupted(now);
    const asked = this.#isForced ? this.#giveUpWaits(now) : this.questions.ask(now);
    const records = [...(this.#isCancelled ? [] : [...ofInterrupted, ...asked]), ...this.steering.record()];
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
        // A repetition changes nothing.
        this.#signIns.end(command.signInId);
        this.questions.signInEnded(command.signInId);
        by = command.by ?? by;
      } else if (command.type === 'delegation') {
        this.delegations.end(command);
      } else if (command.type === 'interrupt') {
        for (const { call } of this.#cellsOf(command.threadId)) call.isInterrupted = true;
        by = command.subject;
        records.push(...this.#giveUpInterrupted(now));
      } else if (command.type === 'answer') {
        const { answers, subject } = command;
        const isRepetition = this.isRepetition(command);
        const before = answers.filter((answer) => isRepetition || this.questions.isRepeated(answer, subject));
        repeated.set(command.id, before);
        if (isRepetition) continue;
        const accepted = this.#accept(command, now);
        if (accepted.length > 0) by = subject;
        records.push(...accepted);
      } else {
        this.#control(command, now);
        if (command.type === 'force_answer') by = command.subject;
        if (command.type === 'resume') raisedBy = command.subject;
        records.push(...this.steering.record());
      }
    }
    if (!this.#isCancelled) {
      records.push(...this.#recordDelegations(now), ...this.questions.advance(now));
      records.push(...this.#idlePauses.update(this.#waitsFor, now, by), ...this.budget.endTask(now, raisedBy));
      this.#failure ??= this.questions.failure ?? this.#idlePauses.failure;
    }
    return { records, verdicts, repeated };
  }

  #accept(command: AnswerCommand, now: number): UnsequencedRecord[] {
    const { answers, refreshes = [], subject } = command;
    this.#given.add(command);
    const records = answers.flatMap((answer) => {
      const added = this.questions.answer(answer, subject, now);
      for (const record of added) {
        // Only a response counts: a call that a person has denied has the denial as its result.
        const isGiven = answer.type === 'user.tool_response' && record.kind === 'tool.response';
        if (isGiven && hasNoResult(record)) this.lackResult(record);
      }
      return added;
    });
    return [...records, ...this.#refresh.accept(refreshes, subject, isoTime(now))];
  }

  #recordDelegations(now: number): UnsequencedRecord[] {
    const records = this.delegations.record(isoTime(now));
    for (const record of records) this.ended(record);
    return this.#counted(records);
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
    this.steering.add(this.pauses.set('requested', type === 'pause', now, subject));
  }

  #force(now: number): UnsequencedRecord[] {
    this.#isForced = true;
    this.#signIns.giveUp();
    this.#refresh.giveUp();
    return [...this.#giveUpUnbegun(now), ...this.#giveUpWaits(now), ...this.#giveUpInterrupted(now)];
  }

  /** Ends cells and tasks that have not begun: they would only be interrupted. */
  #giveUpUnbegun(now: number): UnsequencedRecord[] {
    const calls = [...this.threads.values()].flatMap((thread) => [...thread.calls.values()]);
    const unbegun = calls.filter((call) => call.state === 'ready' && (isCell(call) || startsTask(call)));
    const text = 'This tool call was not executed: the user asked for an answer before it could start.';
    return this.#counted(settleCalls(unbegun, text, isoTime(now)));
  }

  #giveUpInterrupted(now: number): UnsequencedRecord[] {
    const text = 'This tool call was not executed: the code that has made it was interrupted.';
    return this.#counted(settleCalls(callsOfInterrupted(this.threads, this.#isForced), text, isoTime(now)));
  }

  /** Ends all waits: a turn that is to answer does not wait, not even for the questions of calls that began before. */
  #giveUpWaits(now: number): UnsequencedRecord[] {
    return this.#counted(this.questions.giveUp(now));
  }

  #counted(records: UnsequencedRecord[]): UnsequencedRecord[] {
    for (const record of records) this.budget.add(record);
    return records;
  }

  /** The cells of a thread that have begun. */
  #cellsOf(threadId: string): OpenCell[] {
    return openCells(this.threads).filter(({ call }) => call.threadId === threadId);
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
    if (command.type === 'interrupt') {
      if (this.runsCode(command.threadId)) return undefined;
      return { code: 'nothing_running', message: `no code of the thread ${command.threadId} runs` };
    }
    if (command.type !== 'steer' || this.isRepetition(command) || this.steering.hasRoomFor(command)) return undefined;
    const message = `the turn has not read ${MAX_UNREAD} messages yet: wait until it calls its model`;
    return { code: 'too_many_messages', message };
  }

  /**
   * Whether a command changes nothing: the turn is in the requested state, or has accepted all parts of the command
   * before. A call may ask again and get an equal answer, so a command whose calls all wait for an answer is new.
   */
  isRepetition(command: PauseCommand | ForceCommand | SteerCommand | AnswerCommand): boolean {
    if (command.type === 'pause') return this.#isPausedByRequest;
    if (command.type === 'force_answer') return this.#isForced && !this.isHeld;
    if (command.type === 'steer') return this.#given.has(command);
    if (command.type !== 'answer') return !this.isHeld && this.budget.hasRaised(command.budget);
    if (!this.#given.has(command)) return false;
    const isAwaited = this.questions.areAwaited(command);
    return command.isRepetition === true || !isAwaited || this.#refuseAnswers(command) !== undefined;
  }

  #refuseAnswers(command: AnswerCommand): Verdict {
    const { refreshes } = command;
    if (!this.waits || (!refreshes && !this.questions.hasCallsOf(command))) {
      return { code: 'nothing_pending', message: 'no tool call of the running turn waits for an answer' };
    }
    const refusal = this.questions.refuse(command);
    if (refusal || !refreshes) return refusal;
    if (!command.mayRespond) return { code: 'not_an_approver', message: 'you may not refresh toolkits' };
    return this.#refresh.refuse(refreshes);
  }

  /** What the turn waits for, if all threads are idle. */
  get #waitsFor(): IdleReason | undefined {
    return this.waits ? idleReason([...this.threads].map(([id, thread]) => this.#idleThread(id, thread))) : undefined;
  }

  #idleThread(threadId: string, { calls }: Thread): Parameters<typeof idleReason>[0][number] {
    const { running, ready } = this.working(threadId);
    const all = [...calls.values()];
    const reasons = all.filter(isUnanswered).map(({ needs }): IdleReason => (needs === 'sign_in' ? needs : 'action'));
    if (this.#signIns.isWaiting(threadId)) reasons.push('sign_in');
    const isDelegated = all.some(({ state }) => state === 'delegated');
    // Delegated calls end first, however long that takes: only then does the turn wait for the refresh.
    if (this.#needsRefresh(threadId) && !isDelegated) reasons.push('action');
    if (this.delegations.started.some((one) => one.threadId === threadId)) reasons.push('delegation');
    return { isWorking: running.length + ready.length > 0, reasons, isDelegated };
  }
}
