import { recordsOfFailure, unansweredCall, waitingAfterEnd, withOutputs } from './activity-ends.ts';
import { eventId, firstMessageId, resultId } from './ids.ts';
import { codeToResume, endOfLostCell, endOfStoppedCell, lossOf } from './code-threads.ts';
import { pick } from './pick.ts';
import { beginAgain, callsForSandbox, isUnstarted, notStarted } from './sandbox.ts';
import { actionsRequired, callKey, denial, unsuccessfulResponse } from './tool-records.ts';
import { MAX_ASKING } from './questions.ts';
import { TurnActions } from './turn-actions.ts';
import type { CommandEvent } from './turn-command.ts';
import type { TurnState } from './session-state.ts';
import { endOfThread, failureText, startable } from './sub-agents.ts';
import { resolutionOf, runsInSandbox } from './call.ts';
import { endsByDenial } from './tasks.ts';
import { hasMadeAllRounds, modelCalled, modelEnded, type Thread, type Threads } from './threads.ts';
import { TurnFacts, type OpenActivity } from './turn-facts.ts';
import { addRecord, NO_TOTALS, type TurnTotals } from './turn-totals.ts';
import type { LogEntry, LogRecord, UnsequencedRecord } from './records/log.ts';
import { emptyResponse, type MessagePlan, type ModelMessage } from './records/message.ts';
import type { PendingCall, Waiting } from './records/pending.ts';
import type { AuthRequired } from './records/servers.ts';
import { ROOT_THREAD, type SubAgent } from './records/threads.ts';
import type { CancelPhase, TurnCreated, TurnOutcome } from './records/turn.ts';
import {
  TURN_RULES,
  type ActivityResult,
  type HistoryEvent,
  type Open,
  type ScheduledActivity,
  type ScheduledInput,
  type TurnHeader,
  type TurnResult,
  type TurnStart,
  type WorkflowClose,
} from './history.ts';

/** What follows from the end of a workflow task. */
type EndedTask = { entries: LogEntry[] } & Omit<ReturnType<TurnActions['endTask']>, 'records'>;

/**
 * The state of a turn, which its workflow and every reader of its history have: the events of the turn go in, and the
 * entries of its log come out. The same history always gives the same entries, for any reader and any division into
 * pages. When the turn closes, open calls and messages are closed with it, so a log always ends well-formed, also after
 * a crash, an operator's terminate or a bug.
 *
 * A turn that continued as new has several histories; feed them one after the other, or start with a later one.
 */
export class Turn {
  #start: TurnStart | undefined;
  #ordinal = 0;
  #totals: TurnTotals = NO_TOTALS;
  /** The last message of the root agent; undefined as long as it has none in this Temporal run. */
  #output: ModelMessage | null | undefined;
  #done = false;
  #actions: TurnActions | undefined;
  /** Used by `feed`: the commands that arrived before the end of the current workflow task, and the task's start. */
  #commands: CommandEvent[] = [];
  #taskStartedAt = 0;
  /** The verdicts on the commands of the last task that `feed` has completed. The workflow does not keep them. */
  #judged: EndedTask = { entries: [], verdicts: new Map(), repeated: new Map() };
  readonly #running = new Map<number, ScheduledActivity>();
  readonly #facts = new TurnFacts();
  /** The turn's first model call, until its activity is scheduled. */
  #firstCall: MessagePlan | undefined;
  /** The sign-ins that were requested since the last message of their thread. */
  #signIns: AuthRequired[] = [];
  /** How many sub-agents, and sessions of other agents, the turn has started. */
  #startedAgents = 0;
  /** The activity that has ended last in this run. */
  #lastEnded: ScheduledActivity | undefined;
  /** What the root agent did when a command cancelled the turn. */
  #phase: CancelPhase | undefined;
  /** The task queue of the host that has the sandbox of the session, once this run has opened it. */
  #sandboxHost: string | undefined;

  /** The input of the turn's current run; undefined before its first event. */
  get start(): TurnStart | undefined {
    return this.#start;
  }

  /** The turn's state machine between its activities; undefined before its first event. */
  get actions(): TurnActions | undefined {
    return this.#actions;
  }

  /** The verdicts on the commands of the last task that was fed, by their ids. */
  get judged(): EndedTask {
    return this.#judged;
  }

  /** The sub-agents that are not done; parents precede their sub-agents. */
  get subAgents(): SubAgent[] {
    return [...(this.#actions?.threads.values() ?? [])].flatMap(({ agent }) => agent ?? []);
  }

  /** The activities of a thread that are running, or of all. */
  running(threadId?: string): ScheduledActivity[] {
    const all = [...this.#running.values()];
    return threadId === undefined ? all : all.filter(({ input }) => input.threadId === threadId);
  }

  /** A thread that is not done. */
  thread(threadId: string): Thread {
    const thread = this.#actions?.threads.get(threadId);
    if (!thread) throw new Error(`${this.#name()}: the thread ${threadId} is not open`);
    return thread;
  }

  /** How many agents the next message of a thread at `depth` may start, beside those of running model calls. */
  startable(depth: number): number {
    let started = this.#startedAgents;
    for (const { name, input } of this.#running.values()) if (name === 'callModel') started += input.mayStart ?? 0;
    return startable(depth, started);
  }

  /**
   * Whether a person may be asked about a call that begins now if its outcome is unknown: with too many questions, the
   * model sees the outcome instead.
   */
  get mayAskIfUnknown(): boolean {
    if (this.#start?.onUnknown !== 'ask') return false;
    const unanswered = this.#actions?.questions.unanswered ?? [];
    let questions = unanswered.filter(({ unknownOutcome }) => unknownOutcome !== undefined).length;
    for (const { name, input } of this.#running.values()) if (name === 'callTool' && input.onUnknown) questions += 1;
    return questions < MAX_ASKING;
  }

  /** The activities that run after the events that were fed. */
  get openActivities(): OpenActivity[] {
    return this.#facts.open;
  }

  /** The ordinal of the last entry. */
  get ordinal(): number {
    return this.#ordinal;
  }

  get state(): TurnState {
    if (this.#done) return 'ended';
    if (!this.#actions) return 'requested';
    return this.#start?.queued ? 'queued' : this.#actions.openState;
  }

  get #threads(): Threads {
    return this.#actions?.threads ?? new Map();
  }

  /** Whether the turn ends once its calls have ended, without another model call. */
  get endsByDenial(): boolean {
    const root = this.#threads.get(ROOT_THREAD);
    return root !== undefined && this.#start !== undefined && endsByDenial(root, this.#start);
  }

  /** Whether the last message of the root agent is known. */
  get knowsOutput(): boolean {
    return this.#output !== undefined;
  }

  get sandboxHost(): string | undefined {
    return this.#sandboxHost;
  }

  /** True once `turn.done` was projected; nothing comes after it. */
  get done(): boolean {
    return this.#done;
  }

  /** @throws Error if the event cannot follow the previous ones: the history is not a turn's, or there is a bug. */
  feed(event: HistoryEvent): LogEntry[] {
    return this.#facts.addTo(this.#fed(event), event);
  }

  #fed(event: HistoryEvent): LogEntry[] {
    if (this.#done) throw new Error(`turn ${this.#start?.turnId}: an event after the turn's end`);
    switch (event.type) {
      case 'started':
        return this.started(event.start);
      case 'scheduled':
        this.scheduled(event.eventId, event.activity);
        return [];
      case 'ended':
        return this.ended(event.scheduledEventId, event.at, event.end);
      case 'begun':
        return [];
      case 'commanded':
        this.#commands.push(event.command);
        return [];
      case 'taskStarted':
        this.#taskStartedAt = Date.parse(event.at);
        return [];
      case 'taskCompleted':
        this.#judged = this.taskEnded(this.#taskStartedAt, this.#commands.splice(0));
        return this.#judged.entries;
      case 'continued':
        if (this.#running.size > 0) throw new Error(`${this.#name()}: continued as new with an activity open`);
        return [];
      case 'closed':
        return this.#closed(event.at, event.close);
    }
  }

  /** A run begins. @throws Error if it follows rules that this version does not support */
  started(start: TurnStart): LogEntry[] {
    const { carry, rules = 0 } = start;
    if (rules > TURN_RULES) {
      throw new Error(
        `turn ${start.turnId} follows the rules ${rules}, this version the rules ${TURN_RULES}: run the version that began it`,
      );
    }
    if (carry && this.#start && carry.ordinal !== this.#ordinal) {
      throw new Error(`${this.#name()}: the next run counts ${carry.ordinal} records, the log ${this.#ordinal}`);
    }
    this.#start = start;
    this.#actions = new TurnActions(start);
    this.#sandboxHost = undefined;
    // The log of a queued turn begins with its next Temporal run.
    if (start.queued) return [];
    this.#firstCall = startsWithModelCall(start) ? firstCallOf(start) : undefined;
    if (this.#firstCall) this.#actions.steering.modelCalled();
    if (carry) {
      const { usage, modelCalls, toolCalls, started = 0, ordinal } = carry;
      this.#ordinal = ordinal;
      this.#totals = { usage, modelCalls, toolCalls };
      this.#startedAgents = started;
      this.#signIns = carry.requestedSignIns ?? [];
      return [];
    }
    const { createdAt: at, resumes } = start;
    const entries: LogEntry[] = [this.#append(turnCreated(start))];
    this.#startedAgents = (resumes?.threads ?? []).filter(({ code }) => !code).length;
    for (const call of resumes?.pending ?? []) {
      const resolution = resolutionOf(call, start);
      if (resolution.status === 'deny') entries.push(this.#append(denial(call, resolution.reason, at)));
      if (resolution.status === 'expired') entries.push(this.#append(unsuccessfulResponse(call, 'expired', at)));
    }
    return entries;
  }

  /** What the next run of the turn continues. No activity runs. */
  get open(): Open | undefined {
    if (!this.#actions) return undefined;
    const [started, requestedSignIns] = [this.#startedAgents, this.#signIns];
    return {
      ordinal: this.#ordinal,
      ...this.#totals,
      ...(started > 0 && { started }),
      ...(requestedSignIns.length > 0 && { requestedSignIns }),
      ...this.#actions.state,
    };
  }

  /** An activity is scheduled, under an id of the caller. */
  scheduled(id: number, activity: ScheduledActivity): void {
    this.#running.set(id, activity);
    if (activity.name === 'callModel' && !activity.input.ends) {
      this.#firstCall = undefined;
      modelCalled(this.thread(activity.input.threadId), activity.input);
      this.#actions?.limits.modelCalled(activity.input);
      if (activity.input.threadId === ROOT_THREAD) this.#actions?.steering.modelCalled();
    }
    if (activity.name === 'connectTools') this.thread(activity.input.threadId).isConnected = true;
    if (activity.name === 'resumeCell' && !activity.input.isCheck) this.#resumeCell(activity.input);
    if (activity.name === 'callTool' && !this.#actions?.scheduled(activity.input)) {
      throw new Error(`${this.#name()}: ${activity.input.toolCallId} is run but not open`);
    }
  }

  /** An activity has ended. */
  ended(scheduledId: number, at: string, end: ActivityResult): LogEntry[] {
    const activity = this.#running.get(scheduledId);
    if (!activity) return []; // an activity that does not append
    this.#running.delete(scheduledId);
    this.#lastEnded = activity;
    if (activity.name === 'openSandbox') this.#sandboxHost = end.how === 'completed' ? end.host : undefined;
    if (activity.name === 'resumeCell' && end.how === 'timed_out') this.#sandboxHost = undefined;
    if (activity.name === 'callTool' && isUnstarted(end) && beginAgain(this.#threads, activity.input)) {
      this.#sandboxHost = undefined;
      return [];
    }
    const waiting = waitingAfterEnd(activity, end);
    const records = waiting ? [] : this.#recordsOf(activity, end, at);
    if (activity.name === 'resumeCell' && records.length === 0) this.thread(activity.input.threadId).isConnected = true;
    if (activity.name === 'callModel') {
      modelEnded(this.thread(activity.input.threadId), activity.input, end, this.#actions?.waits === true);
    }
    const stamp = end.how === 'completed' ? end.stamp : undefined;
    for (const record of records) this.#actions?.add(record, stamp);
    const isLost = activity.name === 'callTool' && !waiting && end.how !== 'completed' && end.how !== 'cancelled';
    if (isLost) this.#actions?.lackResult(activity.input);
    if (end.how === 'completed' && end.budget) this.#actions?.budget.sharedReached(end.budget);
    if (activity.name === 'callModel' && activity.input.threadId === ROOT_THREAD) {
      this.#actions?.steering.modelEnded();
      if (activity.input.ends) this.#output ??= (end.how === 'completed' && end.output) || null;
    }
    if (waiting) this.#actions?.ask(waiting);
    if (activity.name === 'callTool' && end.how === 'completed' && end.isDelegated) {
      this.#actions?.delegate(activity.input);
    }
    return withOutputs(records).map((record) => this.#append(record));
  }

  /**
   * A workflow task ends.
   * @param now when it started: milliseconds since 1970
   * @param commands those that arrived before its end
   */
  taskEnded(now: number, commands: readonly CommandEvent[]): EndedTask {
    if (!this.#actions || (commands.length === 0 && !this.#actions.isUnsettled(now))) {
      return { entries: [], verdicts: new Map(), repeated: new Map() };
    }
    if (commands.some(({ type }) => type === 'cancelled')) this.#phase ??= this.#phaseNow;
    const { records, ...answers } = this.#actions.endTask(commands, now);
    return { entries: records.map((record) => this.#append(record)), ...answers };
  }

  #recordsOf(activity: ScheduledActivity, end: ActivityResult, at: string): UnsequencedRecord[] {
    if (activity.name === 'resumeCell') return this.#recordsOfCell(activity.input, end, at);
    if (end.how === 'completed') return [...this.#givenUp(activity, at), ...end.records];
    if (activity.name !== 'openSandbox') {
      return recordsOfFailure(activity, end, at, this.thread(activity.input.threadId).agent);
    }
    // Calls that have not begun when the turn closes are closed with it.
    if (end.how === 'cancelled') return [];
    const reason = end.how === 'failed' ? end.message : 'no kernel host has answered';
    const lost = codeToResume(this.#threads).flatMap((thread) => endOfLostCell(thread, { at, reason }));
    return [...lost, ...callsForSandbox(this.#threads).map((call) => notStarted(call, at, reason))];
  }

  /** A sub-agent that ends with its last message gives up its other calls. */
  #givenUp({ name, input }: ScheduledActivity, at: string): UnsequencedRecord[] {
    const isSubAgent = input.threadId !== ROOT_THREAD;
    return isSubAgent && name === 'callModel' && input.ends ? this.#unfinished(at, input.threadId) : [];
  }

  #recordsOfCell(
    { threadId, isCheck }: ScheduledInput<'resumeCell'>,
    end: ActivityResult,
    at: string,
  ): UnsequencedRecord[] {
    const reason = lossOf(end);
    if (reason === undefined) return end.how === 'completed' ? end.records : [];
    // A host that reports the cell as lost has not resumed it.
    const hasGoneOn = !isCheck && end.how !== 'completed' && !isUnstarted(end);
    return endOfLostCell(this.thread(threadId), { at, reason, hasGoneOn });
  }

  /** A cell resumes, and first runs commands. */
  #resumeCell({ threadId, step, commands }: ScheduledInput<'resumeCell'>): void {
    this.thread(threadId).steps = step;
    for (const toolCallId of commands) this.#actions?.scheduled({ threadId, toolCallId });
  }

  #closed(at: string, close: WorkflowClose): LogEntry[] {
    const end = resultOf(close);
    const phase = this.#phase ?? this.#phaseNow;
    const entries: LogEntry[] = [];
    const add = (records: readonly UnsequencedRecord[]): void => {
      for (const record of records) entries.push(this.#append(record));
    };
    if (this.#start?.queued) add([turnCreated(this.#start)]);
    const finishReason = end.status === 'error' ? 'error' : 'cancelled';
    // Readers may have seen the message of a speculative call.
    if (this.#firstCall) add(emptyResponse(this.#firstCall, finishReason, undefined));
    for (const { name, input } of this.#running.values()) {
      // The calls of other activities are still open, and are closed with those that were never scheduled.
      if (name === 'callModel') add(unansweredCall(input, finishReason));
    }
    this.#running.clear();
    this.#actions?.steering.modelEnded();
    add(this.#actions?.steering.record() ?? []);
    const { pending, threads = [] }: Waiting = end.status === 'done' ? end : { pending: [] };
    const left = new Set(threads.map(({ threadId }) => threadId));
    const isLeft = new Set([...pending, ...threads.map(({ parent }) => parent)].map(callKey));
    const message =
      finishReason === 'error' ? 'the turn ended with an error' : 'the turn was cancelled before it was done';
    for (const thread of this.subAgents.filter(({ threadId }) => !left.has(threadId)).toReversed()) {
      add(this.#unfinished(at, thread.threadId, isLeft));
      const stopped = { at, end: { status: 'error' as const, message }, answer: failureText(message) };
      add(
        thread.code
          ? endOfStoppedCell(thread, { at, message })
          : endOfThread(thread, { ...stopped, isCancelled: true }),
      );
    }
    add(this.#unfinished(at, ROOT_THREAD, isLeft));
    const actions = actionsRequired(pending, at).map((action) => this.#append(action));
    const requiredActions = [...this.#signIns, ...actions.map(({ record }) => record)];
    const held = pending.filter(({ needs }) => needs === 'order');
    const limit = this.#actions?.limits.reached;
    const done = this.#append({
      kind: 'turn.done',
      at,
      end:
        end.status === 'done'
          ? {
              status: 'done',
              output: requiredActions.length > 0 ? null : (this.#output ?? null),
              requiredActions,
              ...(held.length > 0 && { held }),
              ...(threads.length > 0 && { threads }),
              ...this.#endedBy(pending),
            }
          : { ...end, ...(end.status === 'cancelled' && { phase }) },
      ...(limit && { limit }),
      ...this.#totals,
      waitedMs: this.#actions?.pauses.waitedUntil(Date.parse(at)) ?? 0,
      workedMs: this.#actions?.budget.workedUntil(Date.parse(at)) ?? 0,
    });
    this.#done = true;
    return [...entries, ...actions, done];
  }

  /** Why the turn that is done has no answer, if it has ended for a reason other than its calls. */
  #endedBy(pending: readonly PendingCall[]): Pick<Extract<TurnOutcome, { status: 'done' }>, 'endedBy'> {
    if (this.endsByDenial) return { endedBy: 'denial' };
    const root = this.#threads.get(ROOT_THREAD);
    if (!root || root.end || pending.length > 0 || !this.#start) return {};
    return hasMadeAllRounds(root, this.#start.limits) ? { endedBy: 'max_turns' } : {};
  }

  /** The results of a thread's calls that have none, without the calls that the turn leaves to the next one. */
  #unfinished(at: string, threadId: string, isLeft: ReadonlySet<string> = new Set()): UnsequencedRecord[] {
    return (this.#actions?.unsettled(threadId) ?? []).flatMap(({ toolCallId, hasBegun, edited }) => {
      const key = { threadId, toolCallId };
      if (isLeft.has(callKey(key))) return [];
      // A result has only arguments with which a call has run.
      return hasBegun
        ? unsuccessfulResponse({ ...key, ...(edited && { edited }) }, 'unknown_outcome', at)
        : unsuccessfulResponse(key, 'cancelled', at);
    });
  }

  /** The current phase. A time limit cancels without a command, when an activity ends: the phase is that activity's. */
  get #phaseNow(): CancelPhase {
    const last = this.#lastEnded && !this.#actions?.isPaused ? [this.#lastEnded] : [];
    const work = (this.#running.size > 0 ? this.running() : last).filter(({ name }) => name !== 'connectTools');
    if (work.some(({ name, input }) => name === 'callModel' && input.threadId === ROOT_THREAD)) return 'model';
    return work.length > 0 || (this.#actions?.delegations.started.length ?? 0) > 0 ? 'tool' : 'between';
  }

  /** A person has denied a call of a thread, or of its code. */
  #deny(threadId: string): void {
    const thread = this.#threads.get(threadId);
    const author = thread?.agent?.code ? this.#threads.get(thread.agent.parent.threadId) : thread;
    if (author) author.isDenied = true;
  }

  #append<R extends UnsequencedRecord>(record: R): { ordinal: number; record: R & { id: string } } {
    if (!this.#start) throw new Error('the history does not begin with its start event');
    this.#ordinal += 1;
    const entry = { ordinal: this.#ordinal, record: { ...record, id: this.#idOf(record, this.#start) } };
    this.#track(entry.record);
    return entry;
  }

  /** The id of a record at the current ordinal. */
  #idOf(record: UnsequencedRecord, { turnId }: TurnStart): string {
    if ('id' in record) return record.id;
    if (record.kind === 'tool.response') {
      const call = this.#threads.get(record.threadId)?.calls.get(record.toolCallId);
      if (call?.source && runsInSandbox(call)) return resultId(turnId, call.source);
    }
    return eventId(turnId, this.#ordinal);
  }

  #track(record: LogRecord): void {
    this.#totals = addRecord(this.#totals, record);
    if (record.kind === 'model.message') {
      if (record.threadId === ROOT_THREAD) this.#output = record;
      const thread = this.#threads.get(record.threadId);
      if (thread) thread.waitedMs = this.#actions?.pauses.waitedMs ?? 0;
      this.#signIns = this.#signIns.filter(({ threadId }) => threadId !== record.threadId);
      for (const { route } of record.toolCalls) {
        if (route.to === 'session') this.#startedAgents += 1;
      }
    } else if (record.kind === 'tool.response') {
      this.#actions?.ended(record);
      if (record.outcome === 'denied' && !record.byRule) this.#deny(record.threadId);
    } else if (record.kind === 'mcp.auth_required') {
      this.#signIns.push(record);
    } else if (record.kind === 'thread.created' && !record.thread.code) {
      this.#startedAgents += 1;
    }
  }

  #name(): string {
    return `turn ${this.#start?.turnId}`;
  }
}

/** The first record of a turn. */
export function turnCreated(start: TurnHeader): TurnCreated {
  const { turnId, createdAt: at, queued, begun } = start;
  return {
    kind: 'turn.created',
    id: eventId(turnId, 1),
    at,
    ...pick(start, 'turnId', 'sessionId', 'previousTurnId', 'createdBy', 'input', 'conversation', 'isRun', 'specHash'),
    ...(queued && { queued: { position: queued.position } }),
    ...(begun && { begunAt: begun.at }),
  };
}

/** Whether a run begins with the model call of the turn's start. A turn that resumes calls runs these first. */
export function startsWithModelCall({ carry, resumes }: Pick<TurnStart, 'carry' | 'resumes'>): boolean {
  return carry === undefined && resumes === undefined;
}

/**
 * The model call with which a turn starts. All of it derives from the turn's start, because the message of a
 * speculative call is shown to readers before the turn's workflow runs.
 */
export function firstCallOf({
  turnId,
  createdAt,
  begun,
  hasServers,
}: Pick<TurnStart, 'turnId' | 'createdAt' | 'begun' | 'hasServers'>): MessagePlan {
  return {
    threadId: ROOT_THREAD,
    messageId: firstMessageId(turnId),
    createdAt: begun?.at ?? createdAt,
    upTo: 1,
    ...(hasServers && { connectsServers: true }),
    mayStart: startable(0, 0),
  };
}

function resultOf(close: WorkflowClose): TurnResult {
  switch (close.how) {
    case 'completed':
      return close.result;
    case 'failed':
      return { status: 'error', message: close.message };
    case 'terminated':
      return { status: 'cancelled', reason: close.reason };
    case 'timed_out':
      return { status: 'cancelled', reason: 'server-execution-timeout' };
  }
}
