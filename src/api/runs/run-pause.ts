import type { Reader } from '../../auth/rights.ts';
import type {
  ActionRequired,
  AnswerableCall,
  AuthRequired,
  LogRecord,
  PauseReason,
  ToolCall,
  ToolDecided,
  ToolkitRefreshed,
  TurnCreated,
} from '../../core/records.ts';
import { ASKED_AGAIN, callKey, operationIdOf, type CallKey } from '../../core/tool-records.ts';
import { argumentsOf } from './output-parts.ts';
import type { RequiredAction } from './wire/run.ts';

/** A call that the client or a person is to answer. */
interface WaitingCall {
  call: ToolCall;
  pending: AnswerableCall;
  /** When it was asked for. */
  at: string;
  /** How many subjects must still allow it. */
  remaining: number;
}

/** The toolkits that are to be refreshed after a message. */
export interface RequiredRefresh {
  messageId: string;
  toolkits: readonly string[];
  pending: ReadonlySet<string>;
}

interface PausedRun {
  created: Pick<TurnCreated, 'turnId' | 'isRun'>;
  /** How often it has called its model. */
  turn: number;
  timeoutSeconds: number;
  reader: Reader;
}

/** What a run waits for: a projection of its log, record by record. A part of `RunOutput`. */
export class RunPause {
  readonly #waiting = new Map<string, WaitingCall>();
  /** The keys of the calls that waited, or do. */
  readonly #asked = new Set<string>();
  readonly #reasons = new Set<PauseReason>();
  #pausedAt = '';
  #refresh: (RequiredRefresh & { pending: Set<string> }) | undefined;
  /** What waits for sign-ins, by the calls or, if its model was not called, by the thread. */
  readonly #signIns = new Map<string, AuthRequired>();
  readonly #toolkits = new Map<string, ToolkitRefreshed>();

  /** Whether the run is paused, and its client or a person can end the pause. */
  get isActionRequired(): boolean {
    const isPaused = this.#reasons.has('action') || this.#reasons.has('sign_in');
    return isPaused && this.#waiting.size + this.#signIns.size + (this.#refresh?.pending.size ?? 0) > 0;
  }

  /** The calls that the client or a person is to answer now. */
  get waiting(): AnswerableCall[] {
    return [...this.#waiting.values()].map(({ pending }) => pending);
  }

  /** Whether the client or a person was asked about a call, which may have a result since. */
  wasAsked(key: CallKey): boolean {
    return this.#asked.has(callKey(key));
  }

  /** The last refresh of toolkits that was required. */
  get refresh(): RequiredRefresh | undefined {
    return this.#refresh;
  }

  /** The toolkits that were refreshed, as they were last, by their names. */
  get toolkits(): ReadonlyMap<string, ToolkitRefreshed> {
    return this.#toolkits;
  }

  /** `callOf` finds the calls that have no result. */
  feed(record: LogRecord, callOf: (key: CallKey) => ToolCall | undefined): void {
    switch (record.kind) {
      case 'tool.approval_required':
      case 'tool.response_required':
        return this.#ask(record, callOf);
      case 'tool.decided':
        return this.#decided(record);
      case 'tool.response':
        this.#waiting.delete(callKey(record));
        this.#signIns.delete(callKey(record));
        return;
      case 'mcp.auth_required': {
        const keys = record.calls.length > 0 ? record.calls.map(callKey) : [record.threadId];
        for (const key of keys) this.#signIns.set(key, record);
        return;
      }
      case 'model.message':
        this.#signIns.delete(record.threadId);
        return;
      case 'toolkit.refresh_required': {
        const { messageId, toolkits } = record;
        this.#refresh = { messageId, toolkits, pending: new Set(toolkits) };
        return;
      }
      case 'toolkit.refreshed':
        this.#refresh?.pending.delete(record.toolkit);
        this.#toolkits.set(record.toolkit, record);
        return;
      case 'turn.paused':
        this.#reasons.add(record.reason);
        if (record.reason === 'action' || record.reason === 'sign_in') this.#pausedAt = record.at;
        return;
      case 'turn.resumed':
        this.#reasons.delete(record.reason);
        return;
      default:
    }
  }

  /** What is required now. */
  action({ created, turn, timeoutSeconds, reader }: PausedRun): RequiredAction {
    const all = [...this.#waiting.values()];
    const signIns = this.#requiredSignIns(reader);
    return {
      turn,
      expires_at: after(this.#pausedAt, timeoutSeconds),
      tool_calls: all
        .filter(({ pending }) => pending.needs === 'response')
        .map(({ call, pending }) => ({
          ...pendingCall(call, pending),
          operation_id: operationIdOf(created, pending),
        })),
      approvals: all.filter(({ pending }) => pending.needs === 'approval').map(approval),
      refresh: [...(this.#refresh?.pending ?? [])],
      ...(signIns.length > 0 && { sign_ins: signIns }),
    };
  }

  /** Several threads and calls may wait for one sign-in. */
  #requiredSignIns({ isOwner }: Reader): NonNullable<RequiredAction['sign_ins']> {
    const signIns = new Map<string, NonNullable<RequiredAction['sign_ins']>[number]>();
    for (const { servers, threadId, calls } of new Set(this.#signIns.values())) {
      const waiting = calls.filter((call) => this.#signIns.has(callKey(call)));
      for (const { signInId, name, authUrl } of servers) {
        const { thread_ids: threads = [], tool_call_ids: ids = [] } = signIns.get(signInId) ?? {};
        signIns.set(signInId, {
          server: name,
          ...(isOwner && { auth_url: authUrl }),
          thread_ids: [...new Set([...threads, threadId])],
          tool_call_ids: [...ids, ...waiting.map(({ toolCallId }) => toolCallId)],
        });
      }
    }
    return [...signIns.values()];
  }

  #ask({ threadId, calls, at }: ActionRequired, callOf: (key: CallKey) => ToolCall | undefined): void {
    for (const pending of calls) {
      const call = callOf({ threadId, toolCallId: pending.toolCallId });
      // The question of a server, or of an unknown outcome, is not for the client that runs tools.
      if (!call || pending.elicitation || pending.unknownOutcome !== undefined) continue;
      this.#asked.add(callKey(pending));
      this.#waiting.set(callKey(pending), { call, pending, at, remaining: pending.policy?.quorum ?? 1 });
    }
  }

  #decided(record: ToolDecided): void {
    const waiting = this.#waiting.get(callKey(record));
    if (!waiting) return;
    waiting.remaining = record.remaining;
    if (record.decision !== 'escalated' && record.remaining === 0) this.#waiting.delete(callKey(record));
  }
}

function pendingCall({ id, name, arguments: text }: ToolCall, { threadId }: CallKey) {
  return { tool_call_id: id, tool_name: name, args: argumentsOf(text).args, thread_id: threadId };
}

function approval({ call, pending, at, remaining }: WaitingCall): RequiredAction['approvals'][number] {
  const { policy, isAskedAgain } = pending;
  const { info } = call;
  return {
    ...pendingCall(call, pending),
    action: {
      kind: 'approval',
      tool: { server: info.type === 'mcp' ? info.serverName : null, name: info.name },
      requested_at: at,
      ...(policy?.expiresInSeconds !== undefined && { expires_at: after(at, policy.expiresInSeconds) }),
      remaining,
      may_edit_arguments: policy?.mayEditArguments ?? true,
      ...(isAskedAgain && { reason: ASKED_AGAIN }),
    },
  };
}

function after(at: string, seconds: number): string {
  return new Date(Date.parse(at) + seconds * 1000).toISOString();
}
