import { ACTIVITY_KINDS, type Attempt, type Called, type EndedActivity } from './attempts.ts';
import { pick } from './pick.ts';
import type { AppendingActivity } from './history.ts';
import type { ToolCall } from './records/calls.ts';
import type { LogRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import { isDecided, type AnswerableCall } from './records/pending.ts';
import type { ToolResponse } from './records/results.ts';
import type { PauseReason, TurnCreated, TurnDone } from './records/turn.ts';
import type { Usage } from './records/usage.ts';
import type { Subject } from './subject.ts';
import { callKey, type CallKey } from './tool-records.ts';

/** What a turn waits for. `question`: the answer to an MCP server; `outcome`: a person's report of a call's end. */
type WaitFor = 'approval' | 'response' | 'question' | 'outcome' | 'sign_in' | 'toolkits' | 'agent';

/** What a turn has spent time on. Times are ISO-8601; an absent time is not known, or not there yet. */
export interface Span extends Called {
  kind: 'queue' | (typeof ACTIVITY_KINDS)[AppendingActivity] | 'wait' | 'pause' | 'thread';
  /** Null if it concerns the whole turn. */
  threadId: string | null;
  /** When the call was scheduled; only its first attempt has it. */
  scheduledAt?: string;
  startedAt?: string;
  endedAt?: string;
  /** It has not ended. */
  isOpen?: true;
  messageId?: string;
  toolCallId?: string;
  /** The thread's title. */
  title?: string;
  /** The number of the call's attempt: see `Attempt`. */
  attempt?: number;
  worker?: string;
  /** How an attempt, the call with its last attempt, or the wait has ended. */
  outcome?: string;
  failure?: string;
  reason?: string;
  /** The usage of all attempts of the model call, on the last one. */
  usage?: Usage;
  waitsFor?: WaitFor | PauseReason;
  /** Who ends the wait; absent if neither a person nor a client does. */
  waitedFor?: 'person' | 'client';
  /** Who has begun a pause. */
  startedBy?: Subject;
  /** The subject that has ended the wait or the pause; absent if a time limit has, or it has not ended. */
  endedBy?: Subject;
}

/** An activity that Temporal describes, and that is not in the log: it has not ended. */
export interface PendingActivity extends Omit<EndedActivity, 'status'> {
  /** The last one has not ended. */
  attempts: Attempt[];
}

/** In ISO-8601 of one format, texts have the order of the times. Spans that have not begun come last. */
function beginOf({ startedAt, scheduledAt, endedAt, isOpen }: Span): string {
  return startedAt ?? scheduledAt ?? endedAt ?? (isOpen ? '~' : '');
}

/**
 * What a turn has spent its time on, according to its log, record by record, and what it does now. Logs of versions
 * that did not keep attempts have one span for each call, with the times that they have.
 */
export class Timeline {
  readonly #spans: Span[] = [];
  /** The open spans, by the key of what ends them. */
  readonly #open = new Map<string, Span>();
  /** The calls of the turn's own messages. */
  readonly #calls = new Map<string, ToolCall>();
  /** When the calls began that ran without an activity of their own, if that is known. */
  readonly #begun = new Map<string, string>();
  readonly #seen = new Set<string>();

  add(record: LogRecord): void {
    // Before its activity, whose span names what was called.
    if (record.kind === 'model.message') this.#noteCalls(record);
    for (const activity of record.activities ?? []) this.#addActivity(activity, record);
    switch (record.kind) {
      case 'turn.created':
        return this.#created(record);
      case 'model.message':
        return this.#answered(record);
      case 'tool.response':
        return this.#responded(record);
      case 'tool.approval_required':
      case 'tool.response_required':
        for (const call of record.calls) this.#begin(waitKey(call), { ...asked(call), startedAt: record.at });
        return;
      case 'tool.decided': {
        const { decision, at, by } = record;
        if (isDecided(record))
          this.#end(waitKey(record), { endedAt: at, outcome: decision, ...(by && { endedBy: by }) });
        return;
      }
      case 'mcp.auth_required': {
        const { threadId, servers, calls, at } = record;
        const wait = { kind: 'wait', waitsFor: 'sign_in', waitedFor: 'person', threadId, startedAt: at } as const;
        const server = servers.map(({ name }) => name).join(', ');
        if (calls.length === 0) this.#begin(signInKey(threadId), { ...wait, server });
        for (const { toolCallId } of calls)
          this.#begin(waitKey({ threadId, toolCallId }), { ...wait, toolCallId, server });
        return;
      }
      case 'toolkit.refresh_required':
        return this.#begin('toolkits', {
          kind: 'wait',
          waitsFor: 'toolkits',
          waitedFor: 'client',
          threadId: null,
          startedAt: record.at,
        });
      case 'toolkit.refreshed':
        return this.#end('toolkits', { endedAt: record.at, endedBy: record.by });
      case 'turn.paused': {
        const { reason: waitsFor, at, by } = record;
        const begun = { startedAt: at, ...(by && { startedBy: by }) };
        return this.#begin(`pause ${waitsFor}`, { kind: 'pause', threadId: null, waitsFor, ...begun });
      }
      case 'turn.resumed': {
        const { reason, at, by } = record;
        const end = { endedAt: at, ...(by && { endedBy: by }) };
        this.#end(`pause ${reason}`, end);
        if (reason !== 'sign_in') return;
        for (const [key, { waitsFor }] of this.#open) if (waitsFor === 'sign_in') this.#end(key, end);
        return;
      }
      case 'thread.created': {
        const { thread, at } = record;
        const { threadId, title } = thread;
        return this.#begin(`thread ${threadId}`, { kind: 'thread', threadId, title, startedAt: at });
      }
      case 'thread.done':
        return this.#end(`thread ${record.threadId}`, { endedAt: record.at, outcome: record.end.status });
      case 'user.steered':
      case 'mcp.initialize':
      case 'context.compacted':
      case 'feature.event':
        return;
      case 'turn.done':
        return this.#done(record);
    }
  }

  /** All spans, ordered by beginning, with the calls that are `pending`. */
  ordered(pending: readonly PendingActivity[]): Span[] {
    this.#addPending(pending);
    return this.#spans.toSorted((a, b) => (beginOf(a) < beginOf(b) ? -1 : beginOf(a) > beginOf(b) ? 1 : 0));
  }

  #addPending(pending: readonly PendingActivity[]): void {
    for (const activity of pending) {
      // It has ended since Temporal described it.
      if (this.#seen.has(activityKey(activity))) continue;
      const spans = this.#spansOf(activity);
      this.#spans.push(...spans.map((span, i): Span => (i === spans.length - 1 ? { ...span, isOpen: true } : span)));
      this.#endSignIn(activity);
    }
  }

  #created({ at, queued, begunAt, input, createdBy }: TurnCreated): void {
    const queue: Span = { kind: 'queue', threadId: null, startedAt: at };
    if (queued) this.#begin('queue', queue);
    else if (begunAt !== undefined) this.#spans.push({ ...queue, endedAt: begunAt });
    for (const item of input) {
      if (item.type === 'user.message') continue;
      const { threadId, toolCallId, by: endedBy = createdBy } = item;
      const isApproval = item.type === 'user.tool_approval';
      // The previous turn has asked: its log has the beginning of the wait.
      this.#spans.push({
        kind: 'wait',
        waitsFor: isApproval ? 'approval' : 'response',
        threadId,
        toolCallId,
        endedAt: at,
        outcome: isApproval ? item.approval.status : 'respond',
        endedBy,
      });
    }
  }

  #noteCalls({ threadId, toolCalls, fromCode, at }: ModelMessage): void {
    for (const call of toolCalls) {
      const key = callKey({ threadId, toolCallId: call.id });
      this.#calls.set(key, call);
      // A kernel host runs the calls of code at once.
      if (fromCode && call.route.to === 'answered' && call.route.ran) this.#begun.set(key, at);
    }
  }

  #answered(message: ModelMessage): void {
    const { threadId, id: messageId, at, isGiven, attempts = [] } = message;
    this.#endSignIn({ name: 'callModel', threadId, scheduledAt: at });
    if (isGiven || this.#seen.has(messageId)) return;
    const call = { kind: 'model_call', threadId, messageId } as const;
    const failed = attempts.map(({ provider, model, failure }, i): Span => {
      return { ...call, attempt: i + 1, provider, model, failure, outcome: 'failed' };
    });
    // When the call was scheduled: the log has no other time of it.
    this.#spans.push(...failed, { ...call, ...pick(message, 'provider', 'model', 'usage'), scheduledAt: at });
  }

  #responded(record: ToolResponse): void {
    const { threadId, toolCallId, outcome, at, by } = record;
    const key = callKey(record);
    this.#end(waitKey(record), { endedAt: at, outcome, ...(by && { endedBy: by }) });
    if (this.#seen.has(key) || !this.#hasRun(record)) return;
    const call = { kind: 'tool_call', threadId, toolCallId } as const;
    const startedAt = this.#begun.get(key);
    const times = { ...(startedAt !== undefined && { startedAt }), endedAt: at };
    this.#spans.push({ ...call, ...calledTool(this.#calls.get(key)), ...times, outcome });
  }

  /** Whether a call without an activity of its own in the log was run by the server. */
  #hasRun(record: ToolResponse): boolean {
    const { by, outcome, fromThread, isGiven } = record;
    if (by || isGiven || fromThread !== undefined || ['denied', 'expired', 'cancelled'].includes(outcome)) return false;
    const route = this.#calls.get(callKey(record))?.route;
    return route === undefined || route.to === 'server' || (route.to === 'answered' && route.ran === true);
  }

  #addActivity(activity: EndedActivity, record: LogRecord): void {
    const { threadId, toolCallId, messageId } = activity;
    this.#seen.add(activityKey(activity));
    this.#endSignIn(activity);
    const spans = this.#spansOf(activity);
    const last = spans.at(-1);
    this.#spans.push(...spans);
    if (!last) return;
    if (activity.name === 'callModel' && record.kind === 'model.message' && record.threadId === threadId) {
      this.#seen.add(messageId ?? '');
      const { usage } = record;
      Object.assign(last, { ...pick(record, 'provider', 'model'), ...last, ...(usage && { usage }) });
    }
    if (last.outcome === 'completed' && activity.status !== undefined) last.outcome = activity.status;
    if (toolCallId === undefined) return;
    const key = callKey({ threadId, toolCallId });
    this.#seen.add(key);
    if (record.kind === 'tool.response' && callKey(record) === key) last.outcome = record.outcome;
    else if (this.#calls.get(key)?.route.to === 'session') {
      const startedAt = last.endedAt ?? record.at;
      this.#begin(waitKey({ threadId, toolCallId }), {
        kind: 'wait',
        waitsFor: 'agent',
        threadId,
        toolCallId,
        startedAt,
      });
    }
  }

  #spansOf({ name, threadId, messageId, toolCallId, scheduledAt, attempts }: Omit<EndedActivity, 'status'>): Span[] {
    const ids = { ...(messageId !== undefined && { messageId }), ...(toolCallId !== undefined && { toolCallId }) };
    const called = toolCallId === undefined ? {} : calledTool(this.#calls.get(callKey({ threadId, toolCallId })));
    const call = { kind: ACTIVITY_KINDS[name], threadId, ...ids, ...called };
    if (attempts.length === 0) return [{ ...call, scheduledAt }];
    return attempts.map(({ number, ...attempt }, i): Span => {
      return { ...call, ...(i === 0 && { scheduledAt }), attempt: number, ...attempt };
    });
  }

  /** Ends the wait for a sign-in of a call that is tried again. */
  #endSignIn({
    name,
    threadId,
    toolCallId,
    scheduledAt,
  }: Pick<EndedActivity, 'name' | 'threadId' | 'toolCallId' | 'scheduledAt'>): void {
    if (name === 'callModel') this.#end(signInKey(threadId), { endedAt: scheduledAt });
    const key = toolCallId === undefined ? undefined : waitKey({ threadId, toolCallId });
    const wait = key === undefined ? undefined : this.#open.get(key);
    if (key !== undefined && wait?.waitsFor === 'sign_in' && scheduledAt >= (wait.startedAt ?? ''))
      this.#end(key, { endedAt: scheduledAt });
  }

  /** A turn that is done leaves its questions to the next one. */
  #done({ at, end }: TurnDone): void {
    for (const [key, { kind }] of this.#open) {
      if (end.status !== 'done' || kind === 'pause' || kind === 'queue')
        this.#end(key, { endedAt: at, ...(kind !== 'pause' && { outcome: 'cancelled' }) });
    }
  }

  #begin(key: string, span: Span): void {
    const open: Span = { ...span, isOpen: true };
    this.#open.set(key, open);
    this.#spans.push(open);
  }

  #end(key: string, end: Partial<Span>): void {
    const span = this.#open.get(key);
    if (!span) return;
    Object.assign(span, end);
    delete span.isOpen;
    this.#open.delete(key);
  }
}

function asked({ threadId, toolCallId, needs, elicitation, unknownOutcome }: AnswerableCall): Span {
  const waitsFor = elicitation ? 'question' : unknownOutcome === undefined ? needs : 'outcome';
  const waitedFor = waitsFor === 'response' ? 'client' : 'person';
  return { kind: 'wait', threadId, toolCallId, waitsFor, waitedFor };
}

/** The tool of a call, as its log names it. */
export function calledTool(call: Pick<ToolCall, 'name' | 'info'> | undefined): Called {
  if (!call) return {};
  const { name, info } = call;
  return info.type === 'mcp' ? { server: info.serverName, tool: info.name } : { tool: name };
}

function waitKey(key: CallKey): string {
  return `call ${callKey(key)}`;
}

function signInKey(threadId: string): string {
  return `sign_in ${threadId}`;
}

function activityKey({ name, threadId, messageId, toolCallId, scheduledAt }: PendingActivity): string {
  return [name, threadId, messageId, toolCallId, scheduledAt].join(' ');
}
