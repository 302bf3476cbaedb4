import type { ToolCall } from './records/calls.ts';
import type { LogRecord } from './records/log.ts';
import { isDecided, type AnswerableCall } from './records/pending.ts';
import type { AuthRequired } from './records/servers.ts';
import {
  endStatus,
  type PauseReason,
  type RefreshRequired,
  type ToolkitRefreshed,
  type TurnCreated,
  type TurnDone,
} from './records/turn.ts';
import { isForClient, openTurnState, type OpenTurnState } from './session-state.ts';
import { callKey, hasBegun, operationIdOf, type CallKey } from './tool-records.ts';

/** A call that waits for the client that runs it, or for a person. */
export interface WaitingCall {
  call: ToolCall;
  pending: AnswerableCall;
  /** When it was asked for. */
  at: string;
  /** How many subjects must still allow it. */
  remaining: number;
}

/** How and when a turn has ended. */
export type TurnEnd = Pick<TurnDone, 'at' | 'end' | 'limit'>;

/**
 * A turn as its log shows it, record by record: its calls without a result, what it waits for, why it is paused, and
 * its end. Each API maps it to its own shapes.
 */
export class TurnView {
  /** The calls that have no result, of all threads, by their keys. */
  readonly #calls: Map<string, ToolCall>;
  readonly #waiting = new Map<string, WaitingCall>();
  /** The keys of the calls that were asked about before they began. */
  readonly #asked = new Set<string>();
  /** The required sign-ins, by the calls that wait or, if a model was not called, by the thread. */
  readonly signIns = new Map<string, AuthRequired>();
  /** The last refresh of each toolkit, by its name. */
  readonly toolkits = new Map<string, ToolkitRefreshed>();
  /** Why the turn is paused, and since when. */
  readonly pauses = new Map<PauseReason, string>();
  #refresh: (RefreshRequired & { pending: Set<string> }) | undefined;
  #created: Omit<TurnCreated, 'input'> | undefined;
  #done: TurnEnd | undefined;

  /** @param leftCalls those that the previous turn left: calls of servers run now, calls of the client are answered */
  constructor(leftCalls: ReadonlyMap<string, ToolCall> = new Map()) {
    this.#calls = new Map([...leftCalls].filter(([, { route }]) => route.to !== 'client'));
  }

  /** Its first record, without the input, which may be large. */
  get created(): Omit<TurnCreated, 'input'> | undefined {
    return this.#created;
  }

  get done(): TurnEnd | undefined {
    return this.#done;
  }

  /** What a turn that has not ended does. */
  get openState(): OpenTurnState {
    return openTurnState(this.pauses, this.forClient.length > 0 || (this.#refresh?.pending.size ?? 0) > 0);
  }

  /** The calls that wait, in the order in which they were asked about. */
  get waiting(): WaitingCall[] {
    return [...this.#waiting.values()];
  }

  /** The calls that wait for the client that runs them. */
  get forClient(): WaitingCall[] {
    return this.waiting.filter(({ pending }) => isForClient(pending));
  }

  /** The calls that wait for a person. */
  get forPeople(): WaitingCall[] {
    return this.waiting.filter(({ pending }) => !isForClient(pending));
  }

  /** Whether the client or a person was asked about a call before it began. It may have a result since. */
  wasAsked(key: CallKey): boolean {
    return this.#asked.has(callKey(key));
  }

  operationIdOf(key: CallKey): string {
    return operationIdOf(this.#created ?? { turnId: '' }, key);
  }

  /** The last refresh of toolkits that was required. `pending`: those of them that the client has not refreshed. */
  get refresh(): (RefreshRequired & { pending: ReadonlySet<string> }) | undefined {
    return this.#refresh;
  }

  /** The calls that a turn which has ended leaves to the next one, by their keys. */
  get leftCalls(): ReadonlyMap<string, ToolCall> {
    return this.#done && endStatus(this.#done.end) === 'action_required' ? this.#calls : new Map();
  }

  /** Adds the next record of the log. Returns the call that it is the result of, if the view has that call. */
  add(record: LogRecord): ToolCall | undefined {
    switch (record.kind) {
      case 'tool.response':
        return this.#answered(callKey(record));
      case 'turn.created': {
        const { input: _, ...created } = record;
        this.#created = created;
        break;
      }
      case 'model.message': {
        const { threadId, toolCalls } = record;
        for (const call of toolCalls) this.#calls.set(callKey({ threadId, toolCallId: call.id }), call);
        this.signIns.delete(threadId);
        break;
      }
      case 'tool.approval_required':
      case 'tool.response_required':
        for (const pending of record.calls) this.#ask(pending, record.at);
        break;
      case 'tool.decided': {
        const waiting = this.#waiting.get(callKey(record));
        if (waiting) waiting.remaining = record.remaining;
        if (isDecided(record)) this.#waiting.delete(callKey(record));
        break;
      }
      case 'mcp.auth_required': {
        const keys = record.calls.length > 0 ? record.calls.map(callKey) : [record.threadId];
        for (const key of keys) this.signIns.set(key, record);
        break;
      }
      case 'toolkit.refresh_required':
        this.#refresh = { ...record, pending: new Set(record.toolkits) };
        break;
      case 'toolkit.refreshed':
        this.#refresh?.pending.delete(record.toolkit);
        this.toolkits.set(record.toolkit, record);
        break;
      case 'turn.paused':
        this.pauses.set(record.reason, record.at);
        break;
      case 'turn.resumed':
        this.pauses.delete(record.reason);
        break;
      case 'turn.done':
        this.end(record);
        break;
      case 'context.compacted':
      case 'feature.event':
      case 'mcp.initialize':
      case 'thread.created':
      case 'thread.done':
      case 'user.steered':
    }
    return undefined;
  }

  /** The turn has ended. The end of a turn whose log is lost is in no record. */
  end(done: TurnEnd): void {
    this.#done = done;
    this.pauses.clear();
    if (endStatus(done.end) !== 'action_required') this.#waiting.clear();
  }

  #ask(pending: AnswerableCall, at: string): void {
    const key = callKey(pending);
    const call = this.#calls.get(key);
    if (!call) return;
    if (!hasBegun(pending)) this.#asked.add(key);
    this.#waiting.set(key, { call, pending, at, remaining: pending.policy?.quorum ?? 1 });
  }

  #answered(key: string): ToolCall | undefined {
    const call = this.#calls.get(key);
    // A long turn has many calls, and each may have large arguments.
    this.#calls.delete(key);
    this.#waiting.delete(key);
    this.signIns.delete(key);
    return call;
  }
}
