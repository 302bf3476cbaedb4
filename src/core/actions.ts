import type { AnswerableCall, ApprovalPolicy, LogRecord, ToolCall, ToolDecided, ToolInfo } from './records.ts';
import { callKey } from './tool-records.ts';

export const ACTION_KINDS = ['approval', 'response', 'unknown_outcome', 'sign_in', 'budget'] as const;

export type ActionKind = (typeof ACTION_KINDS)[number];

export function actionKind({ needs, unknownOutcome }: AnswerableCall): ActionKind {
  return unknownOutcome === undefined ? needs : 'unknown_outcome';
}

/** A tool call that a person or a client was asked about, and what has become of it. */
export interface Action {
  /** Unique in its turn. */
  id: string;
  threadId: string;
  toolCallId: string;
  kind: ActionKind;
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
    if (record.kind === 'model.message') {
      const { threadId } = record;
      for (const call of record.toolCalls) calls.set(callKey({ threadId, toolCallId: call.id }), call);
    } else if (record.kind === 'tool.approval_required' || record.kind === 'tool.response_required') {
      for (const pending of record.calls) {
        const call = calls.get(callKey(pending));
        if (call) actions.set(callKey(pending), asked(pending, call, record.at));
      }
    } else if (record.kind === 'tool.decided') {
      const action = actions.get(callKey(record));
      if (action) decide(action, record);
    } else if (record.kind === 'tool.response') {
      const action = actions.get(callKey(record));
      if (action?.status === 'pending') action.status = record.outcome === 'cancelled' ? 'cancelled' : 'answered';
    }
  }
  return [...actions.values()];
}

function asked(pending: AnswerableCall, call: ToolCall, at: string): Action {
  const { threadId, toolCallId, policy } = pending;
  const expiry = policy?.expiresInSeconds;
  return {
    id: callKey({ threadId, toolCallId }),
    threadId,
    toolCallId,
    kind: actionKind(pending),
    tool: call.info,
    arguments: call.arguments,
    requestedAt: at,
    ...(expiry !== undefined && { expiresAt: new Date(Date.parse(at) + expiry * 1000).toISOString() }),
    ...(policy && { policy }),
    decisions: [],
    status: 'pending',
  };
}

function decide(action: Action, { by, decision, at, reason, remaining }: ToolDecided): void {
  action.decisions.push({ ...(by && { by }), decision, at, ...(reason && { reason }) });
  if (decision === 'deny') action.status = 'denied';
  if (decision === 'respond') action.status = 'answered';
  if (decision === 'expired') action.status = 'expired';
  if (decision === 'allow' && remaining === 0) action.status = 'allowed';
}
