import { eventId, firstMessageId } from './ids.ts';
import {
  addUsage,
  emptyAnswer,
  NO_USAGE,
  ROOT_THREAD,
  type ActionRequired,
  type Approval,
  type AuthRequired,
  type InputItem,
  type LogEntry,
  type LogRecord,
  type MessagePlan,
  type ModelMessage,
  type PendingCall,
  type ToolOutcome,
  type ToolResponse,
  type TurnCreated,
  type UnsequencedRecord,
  UNREPORTED,
  type Usage,
} from './records.ts';
import type {
  ActivityResult,
  AppendingActivity,
  HistoryEvent,
  ScheduledActivity,
  TurnHeader,
  TurnResult,
  TurnStart,
  WorkflowClose,
} from './history.ts';

type Unsuccessful = Exclude<ToolOutcome, 'succeeded'>;

/**
 * Projects a turn's history to its log, event by event. The same history always gives the same entries, for any reader
 * and any division into pages. When the turn closes, open calls and messages are closed with it, so a log always ends
 * well-formed, also after a crash, an operator's terminate or a bug.
 *
 * A turn that continued as new has several histories; feed them one after the other, or start with a later one.
 */
export class TurnProjection {
  #start: TurnStart | undefined;
  #ordinal = 0;
  #usage: Usage = NO_USAGE;
  #output: ModelMessage | null = null;
  #done = false;
  readonly #running = new Map<number, ScheduledActivity>();
  /** The turn's first model call, until its activity is scheduled. */
  #firstCall: MessagePlan | undefined;
  /** Tool calls without a result; `scheduled` is true once their activity is scheduled. */
  readonly #openCalls = new Map<string, CallKey & { scheduled: boolean }>();
  /** The sign-ins that were requested since the last message of their thread. */
  #signIns: AuthRequired[] = [];

  /** The input of the turn's current run; undefined before its first event. */
  get start(): TurnStart | undefined {
    return this.#start;
  }

  /** The ordinal of the last entry. */
  get ordinal(): number {
    return this.#ordinal;
  }

  /** True once `turn.done` was projected; nothing comes after it. */
  get done(): boolean {
    return this.#done;
  }

  /** @throws Error if the event cannot follow the previous ones: the history is not a turn's, or there is a bug. */
  feed(event: HistoryEvent): LogEntry[] {
    if (this.#done) throw new Error(`turn ${this.#start?.turnId}: an event after the turn's end`);
    switch (event.type) {
      case 'started':
        return this.#started(event.start);
      case 'scheduled':
        return this.#scheduled(event.eventId, event.activity);
      case 'ended':
        return this.#ended(event.scheduledEventId, event.at, event.end);
      case 'continued':
        if (this.#running.size > 0) throw new Error(`${this.#name()}: continued as new with an activity open`);
        return [];
      case 'closed':
        return this.#closed(event.at, event.close);
    }
  }

  #started(start: TurnStart): LogEntry[] {
    const { carry } = start;
    if (carry && this.#start && carry.ordinal !== this.#ordinal) {
      throw new Error(`${this.#name()}: the next run counts ${carry.ordinal} records, the log ${this.#ordinal}`);
    }
    this.#start = start;
    this.#firstCall = startsWithModelCall(start) && (carry?.step ?? 0) === 0 ? firstCallOf(start) : undefined;
    if (carry) {
      this.#ordinal = carry.ordinal;
      this.#usage = carry.usage;
      return [];
    }
    const { createdAt: at } = start;
    const entries: LogEntry[] = [this.#append(turnCreated(start))];
    for (const call of start.resumes) {
      const resolution = resolutionOf(call, start.input);
      if (resolution.status === 'deny') {
        entries.push(this.#append(denial(call, resolution.reason, at)));
      } else if (resolution.status === 'allow') {
        this.#openCalls.set(callKey(call), { ...call, scheduled: false });
      }
    }
    return entries;
  }

  #scheduled(id: number, activity: ScheduledActivity): LogEntry[] {
    this.#running.set(id, activity);
    if (activity.name === 'callModel') this.#firstCall = undefined;
    if (activity.name === 'callTool') {
      const open = this.#openCalls.get(callKey(activity.input));
      if (!open) throw new Error(`${this.#name()}: ${activity.input.toolCallId} is run but not open`);
      open.scheduled = true;
    }
    return [];
  }

  #ended(scheduledId: number, at: string, end: ActivityResult): LogEntry[] {
    const activity = this.#running.get(scheduledId);
    if (!activity) return []; // an activity that does not append
    this.#running.delete(scheduledId);
    const records = end.how === 'completed' ? end.records : recordsOfFailure(activity, end, at);
    return records.map((record) => this.#append(record));
  }

  #closed(at: string, close: WorkflowClose): LogEntry[] {
    const end = resultOf(close);
    const entries: LogEntry[] = [];
    const finishReason = end.status === 'error' ? 'error' : 'cancelled';
    // Its readers may have been shown what a speculative call has answered.
    const unanswered = this.#firstCall ? emptyAnswer(this.#firstCall, finishReason, undefined) : [];
    entries.push(...unanswered.map((record) => this.#append(record)));
    for (const activity of this.#running.values()) {
      entries.push(...recordsOfUnfinished(activity, finishReason).map((record) => this.#append(record)));
    }
    this.#running.clear();
    const pending = end.status === 'done' ? end.pending : [];
    for (const call of pending) this.#openCalls.delete(callKey(call));
    for (const call of this.#openCalls.values()) {
      entries.push(this.#append(toolResponse(call, call.scheduled ? 'unknown_outcome' : 'cancelled', at)));
    }
    this.#openCalls.clear();
    const actions = actionsOf(pending, at).map((action) => this.#append(action));
    const requiredActions = [...this.#signIns, ...actions.map(({ record }) => record)];
    const done = this.#append({
      kind: 'turn.done',
      at,
      end:
        end.status === 'done'
          ? { status: 'done', output: requiredActions.length > 0 ? null : this.#output, requiredActions }
          : end,
      usage: this.#usage,
    });
    this.#done = true;
    return [...entries, ...actions, done];
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
    if (record.kind === 'model.message') {
      this.#usage = addUsage(this.#usage, record.usage);
      if (record.threadId === ROOT_THREAD) this.#output = record;
      this.#signIns = this.#signIns.filter(({ threadId }) => threadId !== record.threadId);
      for (const { id: toolCallId } of record.toolCalls) {
        const call = { threadId: record.threadId, toolCallId };
        this.#openCalls.set(callKey(call), { ...call, scheduled: false });
      }
    } else if (record.kind === 'tool.response') {
      this.#openCalls.delete(callKey(record));
    } else if (record.kind === 'mcp.auth_required') {
      this.#signIns.push(record);
      for (const call of record.calls) this.#openCalls.set(callKey(call), { ...call, scheduled: false });
    }
  }

  #name(): string {
    return `turn ${this.#start?.turnId}`;
  }
}

/** The first record of a turn. */
export function turnCreated(start: TurnHeader): TurnCreated {
  const { turnId, sessionId, previousTurnId, createdBy, input, specHash, createdAt: at } = start;
  const id = eventId(turnId, 1);
  return { kind: 'turn.created', id, at, turnId, sessionId, previousTurnId, createdBy, input, specHash };
}

/** Whether a turn starts with a model call. One that answers calls runs these first. */
export function startsWithModelCall({ resumes }: Pick<TurnStart, 'resumes'>): boolean {
  return resumes.length === 0;
}

/**
 * The model call with which a turn starts. All of it derives from the turn's start, because the answer of a speculative
 * call is shown to readers before the turn's workflow runs.
 */
export function firstCallOf({
  turnId,
  createdAt,
  hasServers,
}: Pick<TurnStart, 'turnId' | 'createdAt' | 'hasServers'>): MessagePlan {
  return {
    threadId: ROOT_THREAD,
    messageId: firstMessageId(turnId),
    createdAt,
    upTo: 1,
    ...(hasServers && { connectsServers: true }),
  };
}

/**
 * How many records the projection adds for an activity that failed. The workflow counts with it; if the two disagreed,
 * model calls would refer to the wrong part of the log.
 */
export function countFailureRecords(
  activity: AppendingActivity,
  { connectsServers }: Pick<MessagePlan, 'connectsServers'> = {},
): number {
  return FAILURE_RECORDS[activity] + (connectsServers ? 1 : 0);
}

const FAILURE_RECORDS: Record<AppendingActivity, number> = { callModel: 1, callTool: 1, connectTools: 0 };

/** How many records the log holds when a turn's first run begins. */
export function countStartRecords(start: TurnStart): number {
  return 1 + start.resumes.filter((call) => resolutionOf(call, start.input).status === 'deny').length;
}

export type CallResolution = Approval | { status: 'response'; content: string };

/** How the input of a turn resolves a pending call. One that waited for a sign-in runs with any input. */
export function resolutionOf(call: CallKey & Pick<PendingCall, 'needs'>, input: InputItem[]): CallResolution {
  if (call.needs === 'sign_in') return { status: 'allow' };
  for (const item of input) {
    if (item.type === 'user.message' || callKey(item) !== callKey(call)) continue;
    return item.type === 'user.tool_approval' ? item.approval : { status: 'response', content: item.content };
  }
  throw new Error(`the input does not answer ${call.toolCallId}, which the turn resumes`);
}

/** Identifies a tool call within its turn, together with its thread, since providers number calls per conversation. */
export interface CallKey {
  threadId: string;
  toolCallId: string;
}

export function callKey(call: CallKey): string {
  return `${call.threadId} ${call.toolCallId}`;
}

/** The records that stand for an activity which has failed; as many as `countFailureRecords` says. */
function recordsOfFailure(
  activity: ScheduledActivity,
  end: Exclude<ActivityResult, { how: 'completed' }>,
  at: string,
): UnsequencedRecord[] {
  switch (activity.name) {
    case 'connectTools':
      return [];
    case 'callModel':
      return emptyAnswer(activity.input, end.how === 'cancelled' ? 'cancelled' : 'error', UNREPORTED);
    case 'callTool': {
      const effect = activity.input.source.run?.effect;
      const outcome = outcomeOfFailure(effect, end);
      // An attempt that is to be retried leaves no event in the history, so the call may have been started.
      const text =
        outcome === 'cancelled' && effect === 'retry' ? 'The tool call was cancelled.' : outcomeText(outcome);
      return [toolResponse(activity.input, outcome, at, text)];
    }
  }
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
 * outcome is certain only for a tool that may run twice, and for a call that never reached a worker.
 */
function outcomeOfFailure(
  effect: 'retry' | 'once' | undefined,
  end: Exclude<ActivityResult, { how: 'completed' }>,
): 'cancelled' | 'unknown_outcome' | 'failed' {
  if (end.how === 'cancelled' && !end.started) return 'cancelled';
  return effect === 'once' ? 'unknown_outcome' : 'failed';
}

/** The text for the model and the reader if a call has an outcome but no text of its own. */
export function outcomeText(outcome: Exclude<Unsuccessful, 'denied'>): string {
  switch (outcome) {
    case 'cancelled':
      return 'This tool call was not executed: the turn ended before it could start.';
    case 'expired':
      return 'This tool call was not executed: it was not approved in time.';
    case 'unknown_outcome':
      return 'The outcome of this tool call is unknown: it was started, but no result arrived. It may or may not have taken effect; check before you repeat it.';
    case 'failed':
      return 'The tool call failed: the tool did not answer.';
  }
}

/** The text of a result for the model and the reader. */
export function responseText({ outcome, content }: Pick<ToolResponse, 'outcome' | 'content'>): string {
  if (outcome !== 'denied') return content;
  return content ? `The user denied this tool call. Reason: ${content}` : 'The user denied this tool call.';
}

function toolResponse(
  { threadId, toolCallId }: CallKey,
  outcome: Exclude<Unsuccessful, 'denied'>,
  at: string,
  content = outcomeText(outcome),
): UnsequencedRecord {
  return { kind: 'tool.response', at, threadId, toolCallId, outcome, content };
}

/** The content is the bare reason: here it may be a reference, which cannot be put into a sentence. */
function denial({ threadId, toolCallId }: CallKey, reason: string | undefined, at: string): UnsequencedRecord {
  return { kind: 'tool.response', at, threadId, toolCallId, outcome: 'denied', content: reason ?? '' };
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

/** One event per thread and need, approvals first. */
function actionsOf(pending: PendingCall[], at: string): Omit<ActionRequired, 'id'>[] {
  const groups = new Map<string, Omit<ActionRequired, 'id'>>();
  for (const needs of ['approval', 'response'] as const) {
    for (const call of pending) {
      if (call.needs !== needs) continue;
      const key = `${needs} ${call.threadId}`;
      const kind = needs === 'approval' ? 'tool.approval_required' : 'tool.response_required';
      const group = groups.get(key) ?? { kind, at, threadId: call.threadId, calls: [] };
      group.calls.push(call);
      groups.set(key, group);
    }
  }
  return [...groups.values()];
}
