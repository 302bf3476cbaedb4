import { ApplicationFailure, Context, log } from '@temporalio/activity';

/** Also how soon an activity learns that it is cancelled; short ones end before they report at all. */
const HEARTBEAT_MS = 500;

/** Each is a write to Temporal's database. A worker with many activities sends those of each less often ... */
const MAX_PER_SECOND = 150;
/** ... but for this, at which two may be lost before the activity is taken for dead. */
const MAX_HEARTBEAT_MS = 1_300;

/**
 * How many attempts an activity may lose: an attempt may itself be what ended its worker, or what blocked the event loop
 * until the heartbeats were late, and the next one does the same to everything that runs on its worker. Five leave room
 * for workers that are killed for other reasons, such as a deploy that goes wrong.
 *
 * Temporal's `maximumAttempts` cannot be used: it also counts the attempts that a shutdown of their worker has ended.
 */
export const MAX_LOST_ATTEMPTS = 5;

export const GIVEN_UP =
  `${MAX_LOST_ATTEMPTS} attempts were lost: their workers died, or stalled until they were taken for dead. ` +
  'It is not tried again.';

let running = 0;

/** Why an activity is to stop. Three things that must never be taken for each other. */
export type StopReason = 'cancelled' | 'shutdown' | 'lost';

/** What a heartbeat says to the next attempt. */
interface Report {
  /** The attempts that were lost before the one that reports. */
  lost: number;
  /** False in the last report of an attempt that fails by itself: it was not lost. */
  isRunning: boolean;
  /** The activity's own. */
  details: unknown;
}

interface HeartbeatOptions<T> {
  /** Read for each heartbeat; the next attempt gets them by `detailsLeft`. */
  details?: () => unknown;
  /** Replaces the work when too many attempts were lost. Default: the activity fails for good. */
  giveUp?: () => Promise<T>;
}

/**
 * Runs the work of an attempt and sends heartbeats until it ends. An attempt whose work throws says so in its last
 * heartbeat and is not lost, so whatever Temporal is to retry must be thrown in here.
 */
export async function withHeartbeat<T>(
  work: () => Promise<T>,
  { details = () => undefined, giveUp = fail }: HeartbeatOptions<T> = {},
): Promise<T> {
  const context = Context.current();
  const lost = lostAttempts(context);
  const report = (isRunning: boolean): void =>
    context.heartbeat({ lost, isRunning, details: details() } satisfies Report);
  const beat = (): void => {
    report(true);
    timer = setTimeout(beat, intervalMs());
  };
  running += 1;
  let timer = setTimeout(beat, intervalMs());
  try {
    // Immediately, since an attempt that is lost without a heartbeat is not counted.
    if (context.info.attempt > 1) report(true);
    if (lost < MAX_LOST_ATTEMPTS) return await work();
    log.error('an activity is given up: too many attempts were lost', { lost });
    return await giveUp();
  } catch (error) {
    report(false);
    throw error;
  } finally {
    running -= 1;
    clearTimeout(timer);
  }
}

/** The details in the last heartbeat of the attempts before this one; undefined if there was none. */
export function detailsLeft(): unknown {
  return lastReport(Context.current())?.details;
}

/**
 * How many attempts before this one were lost. An attempt without any heartbeat does not count, since its worker may lack
 * the key to decrypt the input, and that may go on until the key is back. The first attempt does: it sends its first
 * heartbeat after half a second.
 */
function lostAttempts(context: Context): number {
  const last = lastReport(context);
  if (last) return last.lost + (last.isRunning ? 1 : 0);
  return context.info.attempt > 1 ? 1 : 0;
}

function lastReport({ info }: Context): Report | undefined {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by an attempt before this one
  return info.heartbeatDetails as Report | undefined;
}

function intervalMs(): number {
  return Math.min(MAX_HEARTBEAT_MS, Math.max(HEARTBEAT_MS, (running / MAX_PER_SECOND) * 1000));
}

function fail(): Promise<never> {
  throw ApplicationFailure.nonRetryable(GIVEN_UP, 'attempts_lost');
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
