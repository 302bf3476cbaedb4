import { isAsked, type AskedCall } from '../../src/core/call.ts';
import type { TurnActions } from '../../src/core/turn-actions.ts';

/** The thread's calls that were approved or answered, or whose sign-in has ended, and that have no result. */
export function allowedCalls(actions: TurnActions, threadId = 'main'): AskedCall[] {
  return actions
    .unsettled(threadId)
    .filter((call) => call.state === 'ready')
    .filter(isAsked);
}

/** The states of a thread's calls that have no result, by their ids. */
export function statesOf(actions: TurnActions, threadId = 'main'): Record<string, string> {
  return Object.fromEntries(actions.unsettled(threadId).map(({ toolCallId, state }) => [toolCallId, state]));
}
