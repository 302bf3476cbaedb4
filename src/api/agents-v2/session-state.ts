import { sessionState, waitOf } from '../../catalog/session-states.ts';
import type { TurnErrorCode, TurnOutcome } from '../../core/records/turn.ts';
import { stateAfter, type SessionState } from '../../core/session-state.ts';
import type { TurnView } from '../../core/turn-view.ts';
import type { ERROR_CODES, SessionStatusName } from './wire/session.ts';
import { NO_ANSWER } from './turn-events.ts';

/** The statuses of this API, by the states that the catalog has. An idle session may have reached its timeout. */
export const STATUS_OF: Record<SessionState, SessionStatusName> = {
  idle: 'idle',
  queued: 'queued',
  pending: 'pending',
  running: 'running',
  delegating: 'running',
  asking: 'awaiting_tool_results',
  waiting_client: 'awaiting_tool_results',
  waiting_person: 'paused',
  paused: 'paused',
  completed: 'completed',
  unanswered: 'failed',
  error: 'failed',
  timed_out: 'timed_out',
  cancelled: 'interrupted',
  abandoned: 'failed',
};

interface StateSources {
  /** Undefined if the session was created through another API. */
  request: Parameters<typeof sessionState>[0]['request'];
  /** Undefined if the session has no turn. */
  turn: TurnView | undefined;
  /** Milliseconds since 1970. */
  now: number;
}

export interface AgentSessionState {
  status: SessionStatusName;
  error: string | null;
  errorCode: (typeof ERROR_CODES)[number] | null;
  finishedAt: string | null;
}

const ERROR_CODES_OF: Record<TurnErrorCode, AgentSessionState['errorCode']> = {
  answer_misfit: 'answer_validation',
  iteration_limit: 'no_answer',
  budget_exceeded: 'internal',
  model_failed: 'internal',
  tool_failed: 'internal',
  repeated_call_id: 'internal',
  server_unavailable: 'internal',
  repeated_tool_name: 'internal',
  action_expired: 'internal',
};

/**
 * The state of a session by the logs of its turns. The catalog has the same state, by the same rules, moments later: it
 * serves reads of the state alone.
 */
export function stateOf({ request, turn, now }: StateSources): AgentSessionState {
  const done = turn?.done;
  const leaves = done ? stateAfter(done) : null;
  const waitsUntil = leaves && done && request ? waitOf(leaves, done.at, request.idle_timeout_s) : null;
  const isWaiting = waitsUntil !== null && new Date(now).toISOString() < waitsUntil;
  const { state, endedAt } = sessionState({
    type: 'session',
    request: request && { ...request, waits_until: waitsUntil, idle_ends_at: isWaiting ? waitsUntil : null },
    last: turn && {
      created_at: turn.created?.at ?? '',
      archived: done ? 1 : 0,
      state: turn.openState,
      state_at: done?.at ?? null,
      leaves,
    },
    isPast: false,
  });
  const problem = problemOf(state, done?.end, request?.start_error ?? null);
  return { status: STATUS_OF[state ?? 'idle'], ...problem, finishedAt: endedAt };
}

/** Whether a session with this status neither works nor waits for a message. */
export function isFinal(status: SessionStatusName): boolean {
  return ['completed', 'failed', 'timed_out', 'interrupted'].includes(status);
}

/** The problem of a session that has ended in a state; `end` is the end of its last turn, if a turn has begun. */
function problemOf(
  state: SessionState | null,
  end: TurnOutcome | undefined,
  startError: string | null,
): Pick<AgentSessionState, 'error' | 'errorCode'> {
  switch (state) {
    case 'error':
      if (end?.status !== 'error') return { error: startError ?? '', errorCode: 'internal' };
      return { error: end.message, errorCode: end.code ? ERROR_CODES_OF[end.code] : 'internal' };
    case 'unanswered':
      return { error: NO_ANSWER, errorCode: 'no_answer' };
    case 'timed_out': {
      const error = end?.status === 'done' ? NO_ANSWER : 'The turn has reached the time limit of the server.';
      return { error, errorCode: 'timeout' };
    }
    case 'abandoned':
      return { error: 'The turn was ended by the server.', errorCode: 'internal' };
    default:
      return { error: null, errorCode: null };
  }
}
