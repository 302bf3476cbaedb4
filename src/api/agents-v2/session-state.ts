import type { PauseReason, TurnErrorCode, TurnOutcome, AnswerLimit } from '../../core/records.ts';
import { openTurnState, stateAfter, type SessionState as StoredState } from '../../core/session-state.ts';
import type { ToolCallRequest } from './wire/events.ts';
import type { ERROR_CODES, SessionStatusName } from './wire/session.ts';
import { NO_ANSWER } from './turn-events.ts';

/** The statuses of this API, by the states that the catalog has. An idle session may have reached its timeout. */
export const STATUS_OF: Record<StoredState, SessionStatusName> = {
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

/** What is known of a session's last turn. */
export interface LastTurn {
  startedAt: string | undefined;
  /** Undefined while it runs. */
  end: TurnOutcome | undefined;
  endedAt: string | undefined;
  /** The limit at which it was asked for its answer. */
  limit?: AnswerLimit | undefined;
  /** The calls that wait for the client. */
  waiting: ReadonlyMap<string, ToolCallRequest>;
  pauses: ReadonlySet<PauseReason>;
}

export interface StateOptions {
  /** Undefined if the session has no turn. */
  last: LastTurn | undefined;
  /** How long the session waits for a message after an answer, in seconds; null: the answer ends it. */
  idleTimeout: number | null;
  /** Whether a turn was requested that has not begun. */
  isStarting: boolean;
  isQueued: boolean;
  /** Why and when the first turn was rejected; undefined if it was not. */
  rejected: { error: string; at: string } | undefined;
  /** When the session was cancelled last; undefined if it was not. */
  cancelledAt: string | undefined;
  /** Milliseconds since 1970. */
  now: number;
}

export interface SessionState {
  status: SessionStatusName;
  error: string | null;
  errorCode: (typeof ERROR_CODES)[number] | null;
  finishedAt: string | null;
}

const ERROR_CODES_OF: Record<TurnErrorCode, SessionState['errorCode']> = {
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
 * The state of a session by the logs of its turns. The catalog has it moments later (see `catalog/session-states.ts`), by
 * the same rules; what has the state alone reads it there.
 */
export function stateOf({
  last,
  idleTimeout,
  isStarting,
  isQueued,
  rejected,
  cancelledAt,
  now,
}: StateOptions): SessionState {
  if (isQueued) return open('queued');
  if (isStarting && !last) return open('pending');
  const isCancelled = cancelledAt !== undefined && (!last || (last.end && cancelledAt >= (last.startedAt ?? '')));
  if (isCancelled) return ended('interrupted', later(cancelledAt, last?.endedAt ?? ''));
  if (!last && rejected) {
    return { status: 'failed', error: rejected.error, errorCode: 'internal', finishedAt: rejected.at };
  }
  if (!last) return open('idle');
  const { end, endedAt = '', waiting, pauses, limit } = last;
  if (!end) return open(STATUS_OF[openTurnState(pauses, waiting.size > 0)]);
  const state = stateAfter({ end, ...(limit && { limit }) });
  const status = STATUS_OF[state];
  switch (state) {
    case 'idle': {
      if (idleTimeout === null) return ended('completed', endedAt);
      const closesAt = Date.parse(endedAt) + idleTimeout * 1000;
      return now < closesAt ? open('idle') : ended('completed', new Date(closesAt).toISOString());
    }
    case 'error': {
      const { message, code } = end.status === 'error' ? end : { message: '', code: undefined };
      return { status, error: message, errorCode: code ? ERROR_CODES_OF[code] : 'internal', finishedAt: endedAt };
    }
    case 'unanswered':
      return { status, error: NO_ANSWER, errorCode: 'no_answer', finishedAt: endedAt };
    case 'timed_out': {
      const error = end.status === 'done' ? NO_ANSWER : 'The turn has reached the time limit of the server.';
      return { status, error, errorCode: 'timeout', finishedAt: endedAt };
    }
    case 'abandoned':
      return { status, error: 'The turn was ended by the server.', errorCode: 'internal', finishedAt: endedAt };
    case 'cancelled':
      return ended(status, endedAt);
    default:
      return open(status);
  }
}

/** Whether nothing follows by itself, and no message is waited for. */
export function isFinal(status: SessionStatusName): boolean {
  return ['completed', 'failed', 'timed_out', 'interrupted'].includes(status);
}

function open(status: SessionStatusName): SessionState {
  return { status, error: null, errorCode: null, finishedAt: null };
}

function ended(status: SessionStatusName, finishedAt: string): SessionState {
  return { status, error: null, errorCode: null, finishedAt };
}

function later(a: string, b: string): string {
  return a > b ? a : b;
}
