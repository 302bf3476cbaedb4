import { ApplicationFailure, Context, log } from '@temporalio/activity';
import type { Attempt, Called } from '../core/attempts.ts';
import { OwnAttempts, type ReportedAttempts } from './own-attempts.ts';

/**
 * The longest interval between heartbeats, each of which is a write to Temporal's database. It is also the latency of a
 * cancel without a hint, since a cancel arrives with the response to a heartbeat. Shorter activities never heartbeat.
 */
const HEARTBEAT_MS = 1_300;

/** An activity times out if three heartbeats in a row are lost. */
const HEARTBEATS_PER_TIMEOUT = 3;

/** The first interval after a hint; each one after it is twice as long, up to the usual interval. */
const HINTED_HEARTBEAT_MS = 20;

/**
 * The number of attempts that an activity may lose. The attempt itself may have crashed its worker, or blocked the
 * event loop until heartbeats were late, and the next attempt would do the same to everything on its worker. Five leave
 * room for workers that are killed for other reasons, such as a failed deploy.
 *
 * Temporal's `maximumAttempts` cannot be used: it also counts the attempts that a shutdown of their worker has ended.
 */
export const MAX_LOST_ATTEMPTS = 5;

export const GIVEN_UP =
  `${MAX_LOST_ATTEMPTS} attempts were lost: their workers died, or stalled until the attempts timed out. ` +
  'It is not retried.';

/** Why an activity must stop. Each reason is handled differently. */
type StopReason = 'cancelled' | 'shutdown' | 'lost';

/** The details of a heartbeat, for the next attempt. */
interface Report extends ReportedAttempts {
  /** The attempts that were lost before the one that sends the heartbeat. */
  lost: number;
  /** False in the last heartbeat of an attempt that throws, which was therefore not lost. */
  isRunning: boolean;
  /** The activity's own details. */
  details: unknown;
}

interface HeartbeatOptions<T> {
  /** Read for each heartbeat; the next attempt gets them by `detailsLeft`. */
  details?: () => unknown;
  /** What the attempt has called so far. */
  called?: () => Called;
  /** Called with an attempt after which the activity is repeated: this one or, if that was lost, the one before. */
  onRetry?: (failed: Attempt) => void;
  /** Runs instead of the work when too many attempts were lost. Default: a non-retryable failure. */
  giveUp?: (attempts: OwnAttempts) => Promise<T>;
  /**
   * Subscribes to hints that the workflow is cancelling this activity; returns the unsubscribe function. A hint cancels
   * nothing: it only makes the activity ask Temporal sooner. So a lost hint costs time, a wrong one some heartbeats.
   */
  onCancelHint?: (listener: () => void) => () => void;
}

/**
 * Runs the work of an attempt and sends heartbeats until it ends. If the work throws, a last heartbeat marks the
 * attempt as not lost, so errors that Temporal is to retry must be thrown inside of `work`.
 */
export async function withHeartbeat<T>(
  work: (attempts: OwnAttempts) => Promise<T>,
  {
    details = () => undefined,
    called = () => ({}),
    onRetry = () => undefined,
    giveUp = fail,
    onCancelHint = () => () => undefined,
  }: HeartbeatOptions<T> = {},
): Promise<T> {
  const context = Context.current();
  const lost = lostAttempts(context);
  const attempts = new OwnAttempts(context.info, lastReport(context), called);
  const report = (isRunning: boolean): void =>
    context.heartbeat({ lost, isRunning, details: details(), attempts: attempts.all } satisfies Report);
  const longest = longestIntervalMs(context);
  let timer: NodeJS.Timeout | undefined;
  const schedule = (intervalMs: number): void => {
    timer = setTimeout(() => {
      report(true);
      schedule(Math.min(intervalMs * 2, longest));
    }, intervalMs);
  };
  schedule(longest);
  const unsubscribe = onCancelHint(() => {
    clearTimeout(timer);
    // Repeated, because the hint may arrive before Temporal has recorded the cancel.
    schedule(HINTED_HEARTBEAT_MS);
  });
  try {
    // Immediately, since an attempt that is lost before its first heartbeat is not counted.
    if (context.info.attempt > 1) report(true);
    const before = attempts.all.at(-2);
    if (before?.outcome === 'lost') onRetry(before);
    if (lost < MAX_LOST_ATTEMPTS) return await work(attempts);
    log.error('an activity is not retried: too many attempts were lost', { lost });
    return await giveUp(attempts);
  } catch (error) {
    const failure = attempts.failed(error);
    report(false);
    const own = attempts.all.at(-1);
    if (own && own.outcome !== 'cancelled' && failure === error) onRetry(own);
    throw failure;
  } finally {
    unsubscribe();
    clearTimeout(timer);
  }
}

/** The details in the last heartbeat of the attempts before this one; undefined if there was none. */
export function detailsLeft(): unknown {
  return lastReport(Context.current())?.details;
}

/**
 * The number of lost attempts before this one. An attempt without a heartbeat does not count, because its worker may
 * have lacked the key to decrypt the input, which may last until the key is restored. The first attempt counts without
 * one: it sends its first heartbeat only after a second.
 */
function lostAttempts(context: Context): number {
  const last = lastReport(context);
  if (last) return last.lost + (last.isRunning ? 1 : 0);
  return context.info.attempt > 1 ? 1 : 0;
}

function lastReport({ info }: Context): Report | undefined {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by an earlier attempt
  return info.heartbeatDetails as Report | undefined;
}

function longestIntervalMs({ info }: Context): number {
  return Math.min(HEARTBEAT_MS, (info.heartbeatTimeoutMs ?? Infinity) / HEARTBEATS_PER_TIMEOUT);
}

function fail(): Promise<never> {
  throw ApplicationFailure.nonRetryable(GIVEN_UP, 'attempts_lost');
}

/**
 * Why the signal of an activity was aborted: the workflow cancelled it, this worker is shutting down, or the result is
 * no longer awaited (the attempt timed out, or its workflow has closed).
 */
export function stopReason({ cancellationDetails: details }: Context): StopReason {
  if (details?.cancelRequested) return 'cancelled';
  if (details?.workerShutdown) return 'shutdown';
  return 'lost';
}

/** Whether the result of an attempt is still awaited: false once it has timed out, or its workflow has closed. */
export function isAwaited(context: Context): boolean {
  return !context.cancellationSignal.aborted || stopReason(context) !== 'lost';
}
