import type { Reader } from '../../auth/rights.ts';
import { expiresAt } from '../../core/call.ts';
import { addSeconds, isoTime } from '../../core/text.ts';
import { ASKED_AGAIN, callKey, hasBegun } from '../../core/tool-records.ts';
import type { TurnView, WaitingCall } from '../../core/turn-view.ts';
import { argumentsOf } from './output-parts.ts';
import type { RunRequiredAction } from './wire/run.ts';

/** The calls that the client or a person is to answer now. */
export function waitingCalls({ waiting }: TurnView): WaitingCall[] {
  // The question of a server, or of an unknown outcome, is not for the client that runs tools.
  return waiting.filter(({ pending }) => !hasBegun(pending));
}

/** Whether the run is paused, and its client or a person can end the pause. */
export function isActionRequired(turn: TurnView): boolean {
  const isPaused = turn.pauses.has('action') || turn.pauses.has('sign_in');
  return isPaused && waitingCalls(turn).length + turn.signIns.size + (turn.refresh?.pending.size ?? 0) > 0;
}

interface PausedRun {
  /** How often it has called its model. */
  turn: number;
  timeoutSeconds: number;
  reader: Reader;
}

/** What a run that is paused requires. */
export function toRequiredAction(view: TurnView, { turn, timeoutSeconds, reader }: PausedRun): RunRequiredAction {
  const calls = waitingCalls(view);
  const pausedAt = [...view.pauses].findLast(([reason]) => reason === 'action' || reason === 'sign_in')?.[1] ?? '';
  const signIns = requiredSignIns(view, reader);
  return {
    turn,
    expires_at: addSeconds(pausedAt, timeoutSeconds),
    tool_calls: calls
      .filter(({ pending }) => pending.needs === 'response')
      .map((one) => ({ ...pendingCall(one), operation_id: view.operationIdOf(one.pending) })),
    approvals: calls.filter(({ pending }) => pending.needs === 'approval').map(approval),
    refresh: [...(view.refresh?.pending ?? [])],
    ...(signIns.length > 0 && { sign_ins: signIns }),
  };
}

/** Several threads and calls may wait for one sign-in. */
function requiredSignIns(view: TurnView, { isOwner }: Reader): NonNullable<RunRequiredAction['sign_ins']> {
  const signIns = new Map<string, NonNullable<RunRequiredAction['sign_ins']>[number]>();
  for (const { servers, threadId, calls } of new Set(view.signIns.values())) {
    const waiting = calls.filter((call) => view.signIns.has(callKey(call)));
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

function pendingCall({ call: { id, name, arguments: text }, pending: { threadId } }: WaitingCall) {
  return { tool_call_id: id, tool_name: name, args: argumentsOf(text).args, thread_id: threadId };
}

function approval(waiting: WaitingCall): RunRequiredAction['approvals'][number] {
  const { call, pending, at, remaining } = waiting;
  const { policy, isAskedAgain } = pending;
  const { info } = call;
  const expiry = expiresAt({ ...pending, askedAt: Date.parse(at) });
  return {
    ...pendingCall(waiting),
    action: {
      kind: 'approval',
      tool: { server: info.type === 'mcp' ? info.serverName : null, name: info.name },
      requested_at: at,
      ...(expiry !== undefined && { expires_at: isoTime(expiry) }),
      remaining,
      may_edit_arguments: policy?.mayEditArguments ?? true,
      ...(isAskedAgain && { reason: ASKED_AGAIN }),
    },
  };
}
