import { Context } from '@temporalio/activity';

/** Also how soon an activity learns that it is cancelled; short ones end before they report at all. */
const HEARTBEAT_MS = 500;

/** Why an activity is to stop. Three things that must never be taken for each other. */
export type StopReason = 'cancelled' | 'shutdown' | 'lost';

/**
 * Reports that the activity lives, from its first line until `stop`; `details` reach the next attempt.
 */
export function startHeartbeat(details: () => unknown = () => undefined): { stop: () => void } {
  const context = Context.current();
  const timer = setInterval(() => context.heartbeat(details()), HEARTBEAT_MS);
  return { stop: () => clearInterval(timer) };
}

/**
 * Why the signal of an activity was aborted: the workflow cancelled it, this worker shuts down, or nobody waits for it
 * any more (it timed out, or its workflow has closed).
 */
export function stopReason({ cancellationDetails: details }: Context): StopReason {
  if (details?.cancelRequested) return 'cancelled';
  if (details?.workerShutdown) return 'shutdown';
  return 'lost';
}
