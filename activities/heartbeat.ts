import { Context } from '@temporalio/activity';

/** Also how soon an activity learns that it is cancelled; short ones end before they report at all. */
const HEARTBEAT_MS = 500;

/** Each is a write to Temporal's database. A worker with many activities sends those of each less often ... */
const MAX_PER_SECOND = 150;
/** ... but for this, at which two may be lost before the activity is taken for dead. */
const MAX_HEARTBEAT_MS = 1_300;

let running = 0;

/** Why an activity is to stop. Three things that must never be taken for each other. */
export type StopReason = 'cancelled' | 'shutdown' | 'lost';

/**
 * Reports that the activity lives, from its first line until `stop`; `details` reach the next attempt.
 */
export function startHeartbeat(details: () => unknown = () => undefined): { stop: () => void } {
  const context = Context.current();
  running += 1;
  const intervalMs = (): number =>
    Math.min(MAX_HEARTBEAT_MS, Math.max(HEARTBEAT_MS, (running / MAX_PER_SECOND) * 1000));
  const beat = (): void => {
    context.heartbeat(details());
    timer = setTimeout(beat, intervalMs());
  };
  let timer = setTimeout(beat, intervalMs());
  return {
    stop: () => {
      running -= 1;
      clearTimeout(timer);
    },
  };
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
