import type { SpeculativeCall, SpeculativeCalls } from './speculative-calls.ts';
import type { InputItem } from '../core/records.ts';
import { traceHeaders } from '../telemetry/trace-propagation.ts';

type Beginning = Omit<SpeculativeCall, 'input' | 'trace'>;

/**
 * The speculative calls that an API gives. Of the requests of one scope (a caller's on one session) that are on their way
 * together only the first may get one: it is not known yet which of them are the same, nor which has to end before the
 * next asks its model.
 */
export class TurnSpeculations {
  readonly #speculativeCalls: Pick<SpeculativeCalls, 'offer' | 'withdraw'>;
  readonly #open = new Map<string, TurnSpeculation>();

  constructor(speculativeCalls: Pick<SpeculativeCalls, 'offer' | 'withdraw'>) {
    this.#speculativeCalls = speculativeCalls;
  }

  /** To be closed or withdrawn. Undefined if another request of the scope has one. */
  prepare(scope: string): TurnSpeculation | undefined {
    if (this.#open.has(scope)) return undefined;
    const speculativeCall = new TurnSpeculation(this.#speculativeCalls, () => this.#open.delete(scope));
    this.#open.set(scope, speculativeCall);
    return speculativeCall;
  }

  /**
   * Settles when the request that may have a speculative call has claimed what it creates. The others of its scope claim after
   * it: if one of them is the same request and claims first, the model has been asked for a turn that does not come to be.
   */
  async othersClaimed(scope: string): Promise<void> {
    await this.#open.get(scope)?.whenClaimed;
  }
}

/** Whether the model is asked first: calls that are answered are run before. */
export function beginsWithModel(input: { type: string }[]): boolean {
  return input.every(({ type }) => type === 'user.message');
}

/** Is given once, as early as it can be, and taken back if there is no turn. */
export class TurnSpeculation {
  readonly #speculativeCalls: Pick<SpeculativeCalls, 'offer' | 'withdraw'>;
  readonly #onOver: () => void;
  readonly #claimed = Promise.withResolvers<void>();
  #beginning: Beginning | undefined;
  #state: 'possible' | 'given' | 'over' = 'possible';

  constructor(speculativeCalls: Pick<SpeculativeCalls, 'offer' | 'withdraw'>, onOver: () => void) {
    this.#speculativeCalls = speculativeCalls;
    this.#onOver = onOver;
  }

  /** Settles when the request has claimed what it creates, or never will. */
  get whenClaimed(): Promise<void> {
    return this.#claimed.promise;
  }

  /** What the turn will begin with, but for its input, is known. Without this nothing is given. */
  foresee(beginning: Beginning): void {
    this.#beginning = beginning;
  }

  /** The session will most probably accept a turn with this input, so the model may begin, if the turn begins with it. */
  give(input: InputItem[]): void {
    if (this.#state !== 'possible' || !this.#beginning || !beginsWithModel(input)) return;
    this.#state = 'given';
    const { traceparent } = traceHeaders();
    const trace = traceparent === undefined ? {} : { trace: { traceparent } };
    this.#speculativeCalls.offer({ ...this.#beginning, input, ...trace });
  }

  claimed(): void {
    this.#claimed.resolve();
  }

  /** The session has accepted the turn: what was not given comes too late. */
  close(): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#claimed.resolve();
    this.#onOver();
  }

  /** There will be no such turn, unless the session has accepted it. */
  withdraw(): void {
    if (this.#state === 'given' && this.#beginning) this.#speculativeCalls.withdraw(this.#beginning.turnId);
    this.close();
  }
}
