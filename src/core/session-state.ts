import type { PendingCall, RequiredAction } from './records/pending.ts';
import { hasOutput, type CancelReason, type PauseReason, type TurnDone } from './records/turn.ts';

/**
 * What a turn that has begun and not ended does:
 * - `asking`: it works, and calls wait for the client;
 * - `waiting_client`, `waiting_person`: it waits for nothing else;
 * - `delegating`: it waits for agents in other sessions;
 * - `paused`: a command or its budget holds it.
 */
const OPEN_TURN_STATES = ['running', 'delegating', 'asking', 'waiting_client', 'waiting_person', 'paused'] as const;

export type OpenTurnState = (typeof OPEN_TURN_STATES)[number];

export function isOpenTurnState(state: string | null | undefined): state is OpenTurnState {
  return OPEN_TURN_STATES.some((one) => one === state);
}

/** The state of a turn. `requested`: the session may not have accepted it; `queued`: it is in the session's queue. */
const TURN_STATES = ['requested', 'queued', ...OPEN_TURN_STATES, 'ended'] as const;

export type TurnState = (typeof TURN_STATES)[number];

/**
 * The state of a session: what its last turn does, or how it has ended.
 * - `idle`: it waits for a message, and for nothing else; `completed`: the answer has ended it;
 * - `queued`: it waits for a slot; `pending`: its next turn is about to begin;
 * - `unanswered`: the turn has ended without an answer; `abandoned`: the server has ended it.
 */
export const SESSION_STATES = [
  'idle',
  'queued',
  'pending',
  ...OPEN_TURN_STATES,
  'completed',
  'unanswered',
  'error',
  'timed_out',
  'cancelled',
  'abandoned',
] as const;

export type SessionState = (typeof SESSION_STATES)[number];

/** The state of a turn that has begun and not ended. `asksClient`: calls wait for the client that runs its tools. */
export function openTurnState(pauses: { has(reason: PauseReason): boolean }, asksClient: boolean): OpenTurnState {
  if (pauses.has('requested') || pauses.has('budget')) return 'paused';
  const isIdle = pauses.has('action') || pauses.has('sign_in');
  if (asksClient) return isIdle ? 'waiting_client' : 'asking';
  if (isIdle) return 'waiting_person';
  return pauses.has('delegation') ? 'delegating' : 'running';
}

/** Whether a call waits for the client that runs it, not for a person, as a server's question does. */
export function isForClient({ needs, elicitation, unknownOutcome }: Partial<PendingCall>): boolean {
  return needs === 'response' && elicitation === undefined && unknownOutcome === undefined;
}

const AFTER_CANCEL: Record<CancelReason, SessionState> = {
  'client-cancelled': 'cancelled',
  'cancelled-for-next-turn': 'pending',
  'server-execution-timeout': 'timed_out',
  abandoned: 'abandoned',
};

/** The state of a session after a turn that has ended, if it takes messages after an answer. */
export function stateAfter({ end, limit }: Pick<TurnDone, 'end' | 'limit'>): SessionState {
  switch (end.status) {
    case 'error':
      return 'error';
    case 'cancelled':
      return AFTER_CANCEL[end.reason];
    case 'done':
      if (end.requiredActions.length > 0) return asksClient(end.requiredActions) ? 'waiting_client' : 'waiting_person';
      if (hasOutput(end) || end.endedBy) return 'idle';
      return limit === 'time' ? 'timed_out' : 'unanswered';
  }
}

function asksClient(actions: readonly RequiredAction[]): boolean {
  return actions.some((action) => action.kind === 'tool.response_required' && action.calls.some(isForClient));
}
