import {
  hasAnswer,
  type AnswerLimit,
  type PauseReason,
  type TurnErrorCode,
  type TurnOutcome,
} from '../../core/records.ts';
import type { ToolCallRequest } from './wire/events.ts';
import type { ERROR_CODES, SessionStatusName } from './wire/session.ts';
import { isPaused, NO_ANSWER } from './turn-events.ts';

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
 * The state of a session, derived from its turns. It is stored nowhere: whatever crashes, it cannot disagree with the
 * log, and all that it says is settled can be read there.
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
  const { end, endedAt = '', waiting, pauses } = last;
  if (!end) {
    if (isPaused(pauses, waiting.size > 0)) return open('paused');
    return open(waiting.size > 0 ? 'awaiting_tool_results' : 'running');
  }
  switch (end.status) {
    case 'done': {
      // What waits for a person cannot be answered with tool results.
      if (end.requiredActions.length > 0) return open(waiting.size > 0 ? 'awaiting_tool_results' : 'paused');
      if (!hasAnswer(end)) {
        return last.limit === 'time'
          ? { status: 'timed_out', error: NO_ANSWER, errorCode: 'timeout', finishedAt: endedAt }
          : { status: 'failed', error: NO_ANSWER, errorCode: 'no_answer', finishedAt: endedAt };
      }
      if (idleTimeout === null) return ended('completed', endedAt);
      const closesAt = Date.parse(endedAt) + idleTimeout * 1000;
      return now < closesAt ? open('idle') : ended('completed', new Date(closesAt).toISOString());
    }
    case 'error':
      return {
        status: 'failed',
        error: end.message,
        errorCode: end.code ? ERROR_CODES_OF[end.code] : 'internal',
        finishedAt: endedAt,
      };
    case 'cancelled':
      switch (end.reason) {
        case 'client-cancelled':
          return ended('interrupted', endedAt);
        case 'cancelled-for-next-turn':
          return open('pending');
        case 'server-execution-timeout': {
          const error = 'The turn has reached the time limit of the server.';
          return { status: 'timed_out', error, errorCode: 'timeout', finishedAt: endedAt };
        }
        case 'abandoned': {
          const error = 'The turn was ended by the server.';
          return { status: 'failed', error, errorCode: 'internal', finishedAt: endedAt };
        }
      }
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
