import { ApplicationFailure, CancelledFailure, type Info } from '@temporalio/activity';
import { boundedAttempts, MAX_REASON_BYTES, type Attempt, type Called } from '../core/attempts.ts';
import { cutPoint } from '../core/text.ts';
import { redact } from '../lib/redact.ts';
import { WORKER_IDENTITY } from './worker-identity.ts';

/** The report of an attempt on itself and on those before it; absent in the reports of earlier versions. */
export interface ReportedAttempts {
  attempts?: Attempt[];
}

type AttemptInfo = Pick<Info, 'attempt' | 'currentAttemptScheduledTimestampMs'>;

/** The type of the failure of an attempt whose worker stops. */
export const WORKER_SHUTDOWN = 'WorkerShutdown';

/**
 * The attempts of the activity that runs, as each of them reports them to the next one by its heartbeats, and the last one
 * to the history with its result. Temporal itself keeps only the number of an activity's attempts and the last failure.
 */
export class OwnAttempts {
  readonly #earlier: Attempt[];
  readonly #own: Attempt;
  readonly #called: () => Called;

  /**
   * @param reported by the attempt before this one
   * @param called what this attempt has called so far
   */
  constructor(info: AttemptInfo, reported: ReportedAttempts | undefined, called: () => Called) {
    this.#earlier = endedBefore(info, reported);
    this.#own = { number: info.attempt, startedAt: new Date().toISOString(), worker: WORKER_IDENTITY };
    this.#called = called;
  }

  /** The attempts that are kept, with this one as the last. */
  get all(): Attempt[] {
    return boundedAttempts([...this.#earlier, { ...this.#own, ...this.#called() }]);
  }

  /**
   * A result with the facts about its attempts that the history lacks.
   * @param called what this attempt has called, as far as the result does not contain it
   */
  addTo<R extends object>(result: R, called = this.#called()): R & ReportedAttempts {
    if (this.#earlier.length === 0 && Object.keys(called).length === 0) return result;
    return { ...result, attempts: boundedAttempts([...this.#earlier, { number: this.#own.number, ...called }]) };
  }

  /** Records that this attempt has failed. Returns its error, with all attempts if it ends the activity. */
  failed(error: unknown): unknown {
    Object.assign(this.#own, { endedAt: new Date().toISOString() }, endOf(error));
    if (!(error instanceof ApplicationFailure) || !error.nonRetryable) return error;
    const { message, type, cause, category } = error;
    return ApplicationFailure.create({
      message,
      nonRetryable: true,
      details: [{ attempts: this.all } satisfies ReportedAttempts],
      ...(type != null && { type }),
      ...(cause && { cause }),
      ...(category && { category }),
    });
  }
}

/** The attempts before this one. An attempt that has not reported its end was lost. */
function endedBefore(
  { attempt, currentAttemptScheduledTimestampMs: scheduledAt }: AttemptInfo,
  reported: ReportedAttempts | undefined,
): Attempt[] {
  // The first attempt sends its first heartbeat after a second. Nothing is known of several attempts without one.
  const before = reported ? (reported.attempts ?? []) : attempt === 2 ? [{ number: 1 }] : [];
  return before.map((one) =>
    one.outcome ? one : { ...one, outcome: 'lost', endedAt: new Date(scheduledAt).toISOString() },
  );
}

/** The facts about a failure for the next attempt and the user. Only an `ApplicationFailure` has a text for users. */
function endOf(error: unknown): Pick<Attempt, 'outcome' | 'failure' | 'reason'> {
  if (error instanceof CancelledFailure) return { outcome: 'cancelled' };
  if (!(error instanceof ApplicationFailure)) return { outcome: 'failed', failure: 'unavailable' };
  const { type, message } = error;
  if (type === WORKER_SHUTDOWN) return { outcome: 'taken_over' };
  const reason = redact(message).toWellFormed();
  const isCut = cutPoint(reason, 0, MAX_REASON_BYTES) < reason.length;
  return {
    outcome: 'failed',
    ...(type != null && { failure: type }),
    reason: isCut ? `${reason.slice(0, cutPoint(reason, 0, MAX_REASON_BYTES - 3))}…` : reason,
  };
}
