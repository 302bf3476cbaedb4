import { ACTIVITY_KINDS, type Attempt, type EndedActivity, type RetryNotice } from '../../../core/attempts.ts';
import { fieldsToWire, recordToWire } from '../../http/wire-fields.ts';
import { activity, attempt, turnRetrying, type WireActivity, type WireTurnRetrying } from './activities.ts';
import type { View } from './view.ts';

/** The activities that have ended with a record, for readers with `view=full`. */
export function activitiesToWire(activities: EndedActivity[] | undefined, view: View): { activities?: WireActivity[] } {
  return activities && view === 'full' ? { activities: activities.map(activityToWire) } : {};
}

function activityToWire(ended: EndedActivity) {
  const { name, attempts, ...fields } = ended;
  const shown = { ...fields, kind: ACTIVITY_KINDS[name], attempts: attempts.map(attemptToWire) };
  // The outcome of a model call is in the event of its message.
  return fieldsToWire(activity, shown, 'status');
}

function attemptToWire(made: Attempt) {
  const { startedAt = null, endedAt = null, outcome = null } = made;
  return fieldsToWire(attempt, { ...made, startedAt, endedAt, outcome });
}

/** The event for readers with `view=full`. */
export function retryingToWire(notice: RetryNotice): WireTurnRetrying {
  const shown = { ...notice, kind: 'turn.retrying' as const, attempt: attemptToWire(notice.attempt) };
  return recordToWire(turnRetrying, shown, 'turnId');
}
