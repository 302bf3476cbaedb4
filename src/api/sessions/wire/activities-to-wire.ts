import {
  ACTIVITY_KINDS,
  type Attempt,
  type Called,
  type EndedActivity,
  type RetryNotice,
} from '../../../core/attempts.ts';
import type { LogRecord } from '../../../core/records.ts';
import type { WireActivity, WireAttempt, WireCalled, WireTurnRetrying } from './activities.ts';
import type { NoFields } from './no-fields.ts';
import type { View } from './view.ts';

/** The activities that have ended with a record, for readers that get all that is known. */
export function activitiesToWire(
  { activities }: Pick<LogRecord, 'activities'>,
  view: View,
): { activities?: WireActivity[] } {
  return activities && view === 'full' ? { activities: activities.map(activityToWire) } : {};
}

function activityToWire(activity: EndedActivity): WireActivity {
  // What came of a model call is in the event that it has made.
  const { name, threadId, toolCallId, messageId, scheduledAt, attempts, status: _, ...rest } = activity;
  rest satisfies NoFields;
  return {
    kind: ACTIVITY_KINDS[name],
    thread_id: threadId,
    ...(messageId !== undefined && { message_id: messageId }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
    scheduled_at: scheduledAt,
    attempts: attempts.map(attemptToWire),
  };
}

function attemptToWire({
  number,
  startedAt,
  endedAt,
  worker,
  outcome,
  failure,
  reason,
  ...called
}: Attempt): WireAttempt {
  return {
    number,
    started_at: startedAt ?? null,
    ended_at: endedAt ?? null,
    outcome: outcome ?? null,
    ...(worker !== undefined && { worker }),
    ...(failure !== undefined && { failure }),
    ...(reason !== undefined && { reason }),
    ...calledToWire(called),
  };
}

/** The event of a reader that gets all that is known. */
export function retryingToWire(notice: RetryNotice): WireTurnRetrying {
  const { id, at, threadId, messageId, toolCallId, attempt, turnId: _, ...rest } = notice;
  rest satisfies NoFields;
  return {
    type: 'turn.retrying',
    id,
    created_at: at,
    thread_id: threadId,
    ...(messageId !== undefined && { message_id: messageId }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
    attempt: attemptToWire(attempt),
  };
}

export function calledToWire({ provider, model, address, server, tool, ...rest }: Called): WireCalled {
  rest satisfies NoFields;
  return {
    ...(provider !== undefined && { provider }),
    ...(model !== undefined && { model }),
    ...(address !== undefined && { address }),
    ...(server !== undefined && { server }),
    ...(tool !== undefined && { tool }),
  };
}
