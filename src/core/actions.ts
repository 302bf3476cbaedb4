import type { ApprovalPolicy, LogRecord, ToolCall, ToolDecided, ToolInfo } from './records.ts';
import { callKey } from './tool-records.ts';

/** A tool call that a person or a client was asked about, and what has become of it. */
export interface Action {
  /** Unique in its turn. */
  id: string;
  threadId: string;
  toolCallId: string;
  kind: 'approval' | 'response';
  tool: ToolInfo;
  /** The arguments as the model wrote them. */
  arguments: string;
  requestedAt: string;
  /** Present if the approval expires. */
  expiresAt?: string;
  policy?: ApprovalPolicy;
  decisions: Pick<ToolDecided, 'by' | 'decision' | 'at' | 'reason'>[];
  /** `cancelled`: the turn has ended before anybody decided. */
  status: 'pending' | 'allowed' | 'denied' | 'expired' | 'answered' | 'cancelled';
}

/**
 * The actions that the log of a turn has asked for, in that order. The answers to a turn that has ended are in the log of
 * the turn that follows it: for the former its actions stay pending.
 */
export function actionsOf(records: Iterable<LogRecord>): Action[] {
  const calls = new Map<string, ToolCall>();
  const actions = new Map<string, Action>();
  for (const record of records) {
    switch (record.kind) {
      case 'model.message':
        for (const call of record.toolCalls) {
          calls.set(callKey({ threadId: record.threadId, toolCallId: call.id }), call);
        }
        break;
      case 'tool.approval_required':
      case 'tool.response_required':
        for (const { threadId, toolCallId, needs: kind, policy } of record.calls) {
          const id = callKey({ threadId, toolCallId });
          const call = calls.get(id);
          if (!call || kind === 'sign_in') continue;
          const expiry = policy?.expiresInSeconds;
          actions.set(id, {
            id,
            threadId,
            toolCallId,
            kind,
            tool: call.info,
            arguments: call.arguments,
            requestedAt: record.at,
            ...(expiry !== undefined && { expiresAt: after(record.at, expiry) }),
            ...(policy && { policy }),
            decisions: [],
            status: 'pending',
          });
        }
        break;
      case 'tool.decided': {
        const action = actions.get(callKey(record));
        if (action) decide(action, record);
        break;
      }
      case 'tool.response': {
        const action = actions.get(callKey(record));
        if (action?.status === 'pending') {
          action.status = record.outcome === 'cancelled' ? 'cancelled' : 'answered';
        }
        break;
      }
    }
  }
  return [...actions.values()];
}

function decide(action: Action, { by, decision, at, reason, remaining }: ToolDecided): void {
  action.decisions.push({ ...(by && { by }), decision, at, ...(reason && { reason }) });
  if (decision === 'deny') action.status = 'denied';
  if (decision === 'expired') action.status = 'expired';
  if (decision === 'allow' && remaining === 0) action.status = 'allowed';
}

function after(at: string, seconds: number): string {
  return new Date(Date.parse(at) + seconds * 1000).toISOString();
}
