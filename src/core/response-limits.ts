import type { CallModelInput, TurnStart } from './history.ts';
import type { ResponseLimit } from './records/turn.ts';
import type { TurnBudget } from './turn-budget.ts';

/** A model call that begins. */
interface BeginningCall {
  /** How many calls of the root agent count towards its limit, this one included; undefined for a sub-agent. */
  count: number | undefined;
  /** It is the call with which the turn starts, whose message readers may have seen. */
  isBegunByStart: boolean;
}

interface ResponseLimitsOptions {
  start: Pick<TurnStart, 'limits' | 'carry'>;
  budget: Pick<TurnBudget, 'workedUntil'>;
}

/**
 * The limits at which a turn is forced to answer: from then on its model calls are forced. The workflow decides at the
 * beginning of each call, for which no timer is needed: what runs at a limit ends first. The input of the call contains
 * the decision, and `Turn` reads it there. A part of `TurnActions`.
 */
export class ResponseLimits {
  readonly #limits: TurnStart['limits'];
  readonly #budget: ResponseLimitsOptions['budget'];
  #reached: ResponseLimit | undefined;

  constructor({ start, budget }: ResponseLimitsOptions) {
    this.#limits = start.limits;
    this.#budget = budget;
    this.#reached = start.carry?.limit;
  }

  /** The first limit that has forced a model call. */
  get reached(): ResponseLimit | undefined {
    return this.#reached;
  }

  /** Whether a model call that begins now is forced by a limit; if it is not, from when on its thread's next one is. */
  forcing(call: BeginningCall, now: number): Pick<CallModelInput, 'isForced' | 'limit' | 'forcedFromMs'> {
    const { count, isBegunByStart } = call;
    const answersAt = this.answersAt(now);
    if (this.#isLast(count)) return { isForced: true, limit: 'iterations' };
    if (answersAt <= now && !isBegunByStart) return { isForced: true, limit: 'time' };
    if (count === undefined) return {};
    const forcedFromMs = this.#isLast(count + 1) ? 0 : answersAt;
    return forcedFromMs === Infinity ? {} : { forcedFromMs };
  }

  /** A model call has begun. */
  modelCalled({ limit }: Pick<CallModelInput, 'limit'>): void {
    this.#reached ??= limit;
  }

  #isLast(count: number | undefined): boolean {
    const { iterations, answersAtIterations } = this.#limits;
    return answersAtIterations === true && count !== undefined && count >= iterations;
  }

  /** When the time is up if the turn works on: milliseconds since 1970. */
  answersAt(now: number): number {
    const { answerAfterSeconds = Infinity } = this.#limits;
    return now + answerAfterSeconds * 1000 - this.#budget.workedUntil(now);
  }
}
