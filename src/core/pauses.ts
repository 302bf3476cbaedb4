import type { UnsequencedRecord } from './records/log.ts';
import type { PauseReason } from './records/turn.ts';
import type { Subject } from './subject.ts';
import { isoTime } from './text.ts';

/** What a run of a turn passes on when it continues as new. */
interface State {
  reasons: PauseReason[];
  /** When the turn was paused: milliseconds since 1970. */
  since?: number;
  waitedMs: number;
}

/**
 * The reasons for which a turn is paused, each with a record of its beginning and of its end, and the time for which
 * there was at least one. A part of `TurnActions`.
 */
export class Pauses {
  readonly #reasons: Set<PauseReason>;
  #since: number | undefined;
  #waitedMs: number;

  constructor({ reasons, since, waitedMs }: State = { reasons: [], waitedMs: 0 }) {
    this.#reasons = new Set(reasons);
    this.#since = since;
    this.#waitedMs = waitedMs;
  }

  get state(): State {
    return {
      reasons: this.reasons,
      ...(this.#since !== undefined && { since: this.#since }),
      waitedMs: this.#waitedMs,
    };
  }

  get reasons(): PauseReason[] {
    return [...this.#reasons];
  }

  /** How long the turn was paused in all, up to the last time it was resumed. */
  get waitedMs(): number {
    return this.#waitedMs;
  }

  /** How long it was paused in all until `now`, in milliseconds since 1970. */
  waitedUntil(now: number): number {
    return this.#waitedMs + now - (this.#since ?? now);
  }

  has(reason: PauseReason): boolean {
    return this.#reasons.has(reason);
  }

  /** Begins or ends a pause. Returns the record of it, or none if nothing changes. */
  set(reason: PauseReason, isPaused: boolean, now: number, by: Subject | undefined): UnsequencedRecord[] {
    if (this.has(reason) === isPaused) return [];
    if (isPaused) {
      this.#reasons.add(reason);
      this.#since ??= now;
    } else {
      this.#reasons.delete(reason);
      if (this.#reasons.size === 0) {
        this.#waitedMs = this.waitedUntil(now);
        this.#since = undefined;
      }
    }
    const kind = isPaused ? 'turn.paused' : 'turn.resumed';
    return [{ kind, at: isoTime(now), reason, ...(by && { by }) }];
  }
}
