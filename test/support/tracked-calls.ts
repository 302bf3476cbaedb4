import { readyCall, type ReadyCall } from '../../src/core/tracked-call.ts';
import type { TurnActions } from '../../src/core/turn-actions.ts';

/** The thread's calls that were approved or answered, or whose sign-in has ended, and that have no result. */
export function allowedCalls(actions: TurnActions, threadId = 'main'): ReadyCall[] {
  return actions
    .unsettled(threadId)
    .flatMap(({ toolCallId, call }) => (call.state === 'allowed' ? (readyCall(toolCallId, call) ?? []) : []));
}

/** The states of a thread's calls that have no result, by their ids. */
export function statesOf(actions: TurnActions, threadId = 'main'): Record<string, string> {
  return Object.fromEntries(actions.unsettled(threadId).map(({ toolCallId, call }) => [toolCallId, call.state]));
}
