import type { Pauses } from './pauses.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { TurnError } from './records/turn.ts';
import type { Subject } from './subject.ts';

const IDLE_REASONS = ['action', 'sign_in', 'delegation'] as const;

/** What an idle turn may wait for. */
export type IdleReason = (typeof IDLE_REASONS)[number];

interface IdlePausesOptions {
  pauses: Pauses;
  /** How long a turn may wait for people, in seconds. */
  limitSeconds: number | undefined;
  /** When the turn ends because of what it waits for now: milliseconds since 1970. */
  expiresAt: number | undefined;
}

/** What a thread waits for while it is idle. */
interface IdleThread {
  isWorking: boolean;
  reasons: IdleReason[];
  /** Whether threads or sessions work for it. */
  isDelegated: boolean;
}

/** The reason for which a turn with these threads is paused: the first one in `IDLE_REASONS`, once all are idle. */
export function idleReason(threads: readonly IdleThread[]): IdleReason | undefined {
  const isIdle = threads.every(
    ({ isWorking, reasons, isDelegated }) => !isWorking && (reasons.length > 0 || isDelegated),
  );
  const waits = new Set(threads.flatMap(({ reasons }) => reasons));
  return isIdle ? IDLE_REASONS.find((reason) => waits.has(reason)) : undefined;
}

/** The pauses of an idle turn, and how long it may wait. A part of `TurnActions`. */
export class IdlePauses {
  readonly #pauses: Pauses;
  readonly #limitSeconds: number | undefined;
  #expiresAt: number | undefined;
  #failure: Pick<TurnError, 'message' | 'code'> | undefined;

  constructor({ pauses, limitSeconds, expiresAt }: IdlePausesOptions) {
    this.#pauses = pauses;
    this.#limitSeconds = limitSeconds;
    this.#expiresAt = expiresAt;
  }

  /** When the turn ends because of what it waits for now: milliseconds since 1970. */
  get expiresAt(): number | undefined {
    return this.#expiresAt;
  }

  /** Set once the turn has waited for too long. */
  get failure(): Pick<TurnError, 'message' | 'code'> | undefined {
    return this.#failure;
  }

  /** Whether the turn is paused for something else than what it waits for. */
  isOutdated(waitsFor: IdleReason | undefined): boolean {
    return IDLE_REASONS.some((reason) => this.#pauses.has(reason) !== (reason === waitsFor));
  }

  /** Begins or ends the pauses. `by`: the subject whose command ended the wait. `now`: milliseconds since 1970. */
  update(waitsFor: IdleReason | undefined, now: number, by: Subject | undefined): UnsequencedRecord[] {
    this.#limit(waitsFor, now);
    return IDLE_REASONS.flatMap((reason) => {
      const isPaused = reason === waitsFor;
      return this.#pauses.set(reason, isPaused, now, isPaused ? undefined : by);
    });
  }

  /** Each pause for people has the same limit. An answer that arrives at the limit still counts. */
  #limit(waitsFor: IdleReason | undefined, now: number): void {
    const seconds = this.#limitSeconds;
    if (seconds === undefined) return;
    if (waitsFor === undefined || waitsFor === 'delegation') {
      this.#expiresAt = undefined;
    } else if (!this.#pauses.has(waitsFor)) {
      this.#expiresAt = now + seconds * 1000;
    } else if (this.#expiresAt !== undefined && this.#expiresAt <= now) {
      this.#expiresAt = undefined;
      const message = `The turn has waited for answers for ${seconds} s, which is its limit.`;
      this.#failure ??= { message, code: 'action_expired' };
    }
  }
}
