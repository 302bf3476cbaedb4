import { eventId, firstMessageId } from './ids.ts';
import { actionsRequired, callKey, denial, outcomeText, toolResponse, waitingAfter } from './tool-records.ts';
import { MAX_ASKING, TurnActions } from './turn-actions.ts';
import type { TurnEvent } from './turn-command.ts';
import type { TurnState } from './session-state.ts';
import { endOfThread, failureAnswer, startable } from './sub-agents.ts';
import { resolutionOf } from './call.ts';
import { modelCalled, modelEnded, type Thread } from './threads.ts';
import { TurnFacts, type OpenActivity } from './turn-facts.ts';
import { addRecord, NO_TOTALS, type TurnTotals } from './turn-totals.ts';
import {
  emptyAnswer,
  ROOT_THREAD,
  type AuthRequired,
  type LogEntry,
  type LogRecord,
  type MessagePlan,
  type ModelMessage,
  type PendingCall,
  type SubAgent,
  type TurnCreated,
  type UnsequencedRecord,
  UNREPORTED,
  type Waiting,
} from './records.ts';
import {
  TURN_RULES,
  type ActivityResult,
  type HistoryEvent,
  type Open,
  type ScheduledActivity,
  type TurnHeader,
  type TurnResult,
  type TurnStart,
  type WorkflowClose,
} from './history.ts';

/** What follows from the end of a workflow task. */
type EndedTask = { entries: LogEntry[] } & Omit<ReturnType<TurnActions['endTask']>, 'records'>;

/**
 * The state of a turn, which its workflow and every reader of its history have: what happens in the turn goes in, event by
 * event, and the entries of its log come out. The same history always gives the same entries, for any reader and any
 * division into pages. When the turn closes, open calls and messages are closed with it, so a log always ends well-formed,
 * also after a crash, an operator's terminate or a bug.
 *
 * A turn that continued as new has several histories; feed them one after the other, or start with a later one.
 */
export class Turn {
  #start: TurnStart | undefined;
  #ordinal = 0;
  #totals: TurnTotals = NO_TOTALS;
  #output: ModelMessage | null = null;
  #done = false;
  #actions: TurnActions | undefined;
  /** Used by `feed`: the commands that arrived before the end of the current workflow task, and when the task started. */
  #commands: TurnEvent[] = [];
  #taskStartedAt = 0;
  /** What the last task that `feed` has completed says to its commands. The workflow does not keep it. */
  #judged: EndedTask = { entries: [], verdicts: new Map(), repeated: new Map() };
  readonly #running = new Map<number, ScheduledActivity>();
  readonly #facts = new TurnFacts();
  /** The turn's first model call, until its activity is scheduled. */
  #firstCall: MessagePlan | undefined;
  /** The sign-ins that were requested since the last message of their thread. */
  #signIns: AuthRequired[] = [];
  /** How many sub-agents, and sessions of other agents, the turn has started. */
  #startedAgents = 0;

  /** The input of the turn's current run; undefined before its first event. */
  get start(): TurnStart | undefined {
    return this.#start;
  }

  /** The calls of the turn that wait for answers; undefined before its first event. */
  get actions(): TurnActions | undefined {
    return this.#actions;
  }

  /** What the turn says to the commands of the last task that was fed, by their ids. */
  get judged(): EndedTask {
    return this.#judged;
  }

  /** The sub-agents that are not done; parents stand before theirs. */
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

  /** How many sub-agents, and sessions of other agents, the next message of a thread of this depth may start, beside what the running model calls may. */
  startable(depth: number): number {
    let started = this.#startedAgents;
    for (const { name, input } of this.#running.values()) if (name === 'callModel') started += input.mayStart ?? 0;
    return startable(depth, started);
  }

  /**
   * Whether a person may be asked about a call that begins now if its outcome is unknown: with too many questions, the
   * model is told the outcome instead.
   */
  get mayAskIfUnknown(): boolean {
    if (this.#start?.onUnknown !== 'ask') return false;
    const unanswered = this.#actions?.unanswered ?? [];
    let questions = unanswered.filter(({ unknownOutcome }) => unknownOutcome !== undefined).length;
    for (const { name, input } of this.#running.values()) if (name === 'callTool' && input.onUnknown) questions += 1;
    return questions < MAX_ASKING;
  }

  /** The activities that run, as far as the history was fed. */
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

  /** A run begins. @throws Error if it follows rules that this version does not know */
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
    // Its log begins with its next run.
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
    this.#startedAgents = resumes?.threads?.length ?? 0;
    for (const call of resumes?.pending ?? []) {
      const resolution = resolutionOf(call, start.input);
      if (resolution.status === 'deny') entries.push(this.#append(denial(call, resolution.reason, at)));
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
    if (activity.name === 'callModel') {
      this.#firstCall = undefined;
      modelCalled(this.thread(activity.input.threadId), activity.input);
      this.#actions?.limits.modelCalled(activity.input);
      if (activity.input.threadId === ROOT_THREAD) this.#actions?.steering.modelCalled();
    }
    if (activity.name === 'connectTools') this.thread(activity.input.threadId).isConnected = true;
    if (activity.name === 'callTool' && !this.#actions?.scheduled(activity.input)) {
      throw new Error(`${this.#name()}: ${activity.input.toolCallId} is run but not open`);
    }
  }

  /** An activity has ended. */
  ended(scheduledId: number, at: string, end: ActivityResult): LogEntry[] {
    const activity = this.#running.get(scheduledId);
    if (!activity) return []; // an activity that does not append
    this.#running.delete(scheduledId);
    const waiting = waitingAfterEnd(activity, end);
    const { agent } = this.thread(activity.input.threadId);
    const records = end.how === 'completed' ? end.records : waiting ? [] : recordsOfFailure(activity, end, at, agent);
    if (activity.name === 'callModel') {
      modelEnded(this.thread(activity.input.threadId), activity.input, end, this.#actions?.waits === true);
    }
    const stamp = end.how === 'completed' ? end.stamp : undefined;
    for (const record of records) this.#actions?.add(record, stamp);
    const isLost = activity.name === 'callTool' && !waiting && end.how !== 'completed' && end.how !== 'cancelled';
    if (isLost) this.#actions?.lackResult(activity.input);
    if (end.how === 'completed' && end.budget) this.#actions?.budget.sharedReached(end.budget);
    if (activity.name === 'callModel' && activity.input.threadId === ROOT_THREAD) this.#actions?.steering.modelEnded();
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
  taskEnded(now: number, commands: readonly TurnEvent[]): EndedTask {
    if (!this.#actions || (commands.length === 0 && !this.#actions.isUnsettled(now))) {
      return { entries: [], verdicts: new Map(), repeated: new Map() };
    }
    const { records, ...answers } = this.#actions.endTask(commands, now);
    return { entries: records.map((record) => this.#append(record)), ...answers };
  }

  #closed(at: string, close: WorkflowClose): LogEntry[] {
    const end = resultOf(close);
    const entries: LogEntry[] = this.#start?.queued ? [this.#append(turnCreated(this.#start))] : [];
    const finishReason = end.status === 'error' ? 'error' : 'cancelled';
    // Its readers may have been shown what a speculative call has answered.
    const unanswered = this.#firstCall ? emptyAnswer(this.#firstCall, finishReason, undefined) : [];
    entries.push(...unanswered.map((record) => this.#append(record)));
    for (const activity of this.#running.values()) {
      entries.push(...recordsOfUnfinished(activity, finishReason).map((record) => this.#append(record)));
    }
    this.#running.clear();
    this.#actions?.steering.modelEnded();
    entries.push(...(this.#actions?.steering.record() ?? []).map((record) => this.#append(record)));
    const { pending, threads = [] }: Waiting = end.status === 'done' ? end : { pending: [] };
    const left = new Set(threads.map(({ threadId }) => threadId));
    const isLeft = new Set([...pending, ...threads.map(({ parent }) => parent)].map(callKey));
    const message =
      finishReason === 'error' ? 'the turn ended with an error' : 'the turn was cancelled before it was done';
    for (const thread of this.subAgents.filter(({ threadId }) => !left.has(threadId)).toReversed()) {
      entries.push(...this.#closeCalls(at, isLeft, thread.threadId));
      const stopped = { at, end: { status: 'error' as const, message }, answer: failureAnswer(message) };
      const records = endOfThread(thread, { ...stopped, isCancelled: true });
      entries.push(...records.map((record) => this.#append(record)));
    }
    entries.push(...this.#closeCalls(at, isLeft, ROOT_THREAD));
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
              output: requiredActions.length > 0 ? null : this.#output,
              requiredActions,
              ...(held.length > 0 && { held }),
              ...(threads.length > 0 && { threads }),
            }
          : end,
      ...(limit && { limit }),
      ...this.#totals,
      waitedMs: this.#actions?.waitedUntil(Date.parse(at)) ?? 0,
      workedMs: this.#actions?.budget.workedUntil(Date.parse(at)) ?? 0,
    });
    this.#done = true;
    return [...entries, ...actions, done];
  }

  /** Closes the calls of a thread, but those that the turn leaves to the next one. */
  #closeCalls(at: string, isLeft: ReadonlySet<string>, threadId: string): LogEntry[] {
    return (this.#actions?.unsettled(threadId) ?? []).flatMap(({ toolCallId, hasBegun, edited }) => {
      const key = { threadId, toolCallId };
      if (isLeft.has(callKey(key))) return [];
      // Arguments are those with which a call has run.
      const response = hasBegun
        ? toolResponse({ ...key, ...(edited && { edited }) }, 'unknown_outcome', at)
        : toolResponse(key, 'cancelled', at);
      return this.#append(response);
    });
  }

  #append<R extends UnsequencedRecord>(record: R): { ordinal: number; record: R & { id: string } } {
    if (!this.#start) throw new Error('the history does not begin with its start event');
    this.#ordinal += 1;
    const id = 'id' in record ? record.id : eventId(this.#start.turnId, this.#ordinal);
    const entry = { ordinal: this.#ordinal, record: { ...record, id } };
    this.#track(entry.record);
    return entry;
  }

  #track(record: LogRecord): void {
    this.#totals = addRecord(this.#totals, record);
    if (record.kind === 'model.message') {
      if (record.threadId === ROOT_THREAD) this.#output = record;
      this.#signIns = this.#signIns.filter(({ threadId }) => threadId !== record.threadId);
      for (const { route } of record.toolCalls) {
        if (route.to === 'session') this.#startedAgents += 1;
      }
    } else if (record.kind === 'tool.response') {
      this.#actions?.ended(record);
    } else if (record.kind === 'mcp.auth_required') {
      this.#signIns.push(record);
    } else if (record.kind === 'thread.created') {
      this.#startedAgents += 1;
    }
  }

  #name(): string {
    return `turn ${this.#start?.turnId}`;
  }
}

/** The first record of a turn. */
export function turnCreated(start: TurnHeader): TurnCreated {
  const { turnId, sessionId, previousTurnId, createdBy, input, createdAt: at } = start;
  const { conversation, isRun, specHash, queued, begun } = start;
  return {
    kind: 'turn.created',
    id: eventId(turnId, 1),
    at,
    turnId,
    sessionId,
    previousTurnId,
    createdBy,
    input,
    ...(conversation && { conversation }),
    ...(isRun && { isRun }),
    specHash,
    ...(queued && { queued: { position: queued.position } }),
    ...(begun && { begunAt: begun.at }),
  };
}

/** Whether a run begins with the model call of the turn's start. A turn that resumes calls runs these first. */
export function startsWithModelCall({ carry, resumes }: Pick<TurnStart, 'carry' | 'resumes'>): boolean {
  return carry === undefined && resumes === undefined;
}

/**
 * The model call with which a turn starts. All of it derives from the turn's start, because the answer of a speculative
 * call is shown to readers before the turn's workflow runs.
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

/** What a call waits for whose activity has ended without a result. */
function waitingAfterEnd(activity: ScheduledActivity, end: ActivityResult): PendingCall | undefined {
  if (activity.name !== 'callTool' || end.how === 'cancelled') return undefined;
  return waitingAfter(activity.input, end.how === 'completed' ? end : 'lost');
}

/** The records that stand for an activity of a thread which has failed; with its model call, a sub-agent ends, too. */
function recordsOfFailure(
  activity: ScheduledActivity,
  end: Exclude<ActivityResult, { how: 'completed' }>,
  at: string,
  subAgent: SubAgent | undefined,
): UnsequencedRecord[] {
  switch (activity.name) {
    case 'connectTools':
      return [];
    case 'callModel': {
      const isCancelled = end.how === 'cancelled';
      const answer = emptyAnswer(activity.input, isCancelled ? 'cancelled' : 'error', UNREPORTED);
      if (!subAgent) return answer;
      const message = end.how === 'failed' ? end.message : 'its model call was lost';
      const failed = { at, end: { status: 'error' as const, message }, answer: failureAnswer(message), isCancelled };
      return [...answer, ...endOfThread(subAgent, failed)];
    }
    case 'callTool': {
      const effect = activity.input.source.run?.effect;
      const isContinued = activity.input.answered !== undefined || activity.input.repeats === true;
      const outcome = outcomeOfFailure({ effect, isContinued }, end);
      // An attempt that is to be retried leaves no event in the history, so the call may have been started.
      const text =
        outcome === 'cancelled' && effect === 'retry' ? 'The tool call was cancelled.' : outcomeText(outcome);
      return [toolResponse(activity.input, outcome, at, text)];
    }
  }
}

/** Adds the last message of a thread that is done to the record of its end, which directly follows it. */
function withOutputs(records: UnsequencedRecord[]): UnsequencedRecord[] {
  return records.map((record, i) => {
    const output = records[i - 1];
    const isDone = record.kind === 'thread.done' && record.end.status === 'done';
    return isDone && output?.kind === 'model.message' ? { ...record, output } : record;
  });
}

/** The records that stand for an activity which was running when the turn closed. */
function recordsOfUnfinished(activity: ScheduledActivity, finishReason: 'cancelled' | 'error'): UnsequencedRecord[] {
  switch (activity.name) {
    case 'connectTools':
      return [];
    case 'callModel':
      return emptyAnswer(activity.input, finishReason, UNREPORTED);
    case 'callTool':
      // Its call is still open, and is closed with the calls that were never scheduled.
      return [];
  }
}

/**
 * The outcome of a call whose activity failed: `callTool` returns every outcome that it knows. Without a result, the
 * outcome is certain only for a tool that may run twice, and for a call that never reached a worker. A call that
 * continues with an answer of the user, or runs again, has reached one before.
 */
function outcomeOfFailure(
  { effect, isContinued }: { effect: 'retry' | 'once' | undefined; isContinued: boolean },
  end: Exclude<ActivityResult, { how: 'completed' }>,
): 'cancelled' | 'unknown_outcome' | 'failed' {
  if (end.how === 'cancelled' && !end.started && !(effect === 'once' && isContinued)) return 'cancelled';
  return effect === 'once' ? 'unknown_outcome' : 'failed';
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
