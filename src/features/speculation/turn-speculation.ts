import type { InputItem } from '../../core/records/input.ts';
import type { TurnAccepted } from '../../core/session.ts';
import type { ExpectedTurn, Speculation, Speculator } from '../../engine/speculation.ts';
import { traceHeaders } from '../../telemetry/trace-propagation.ts';
import type { SpeculativeCalls } from './speculative-calls.ts';

type OfferedCalls = Pick<SpeculativeCalls, 'isServed' | 'offer' | 'accept' | 'withdraw'>;

/**
 * Gives the requests of an API process their speculative calls. Only one of the concurrent requests of a scope gets
 * one: until they have made their claims, it is unknown which of them are equal, and which must end before the next one
 * may call its model.
 */
export class TurnSpeculator implements Speculator {
  readonly #speculativeCalls: OfferedCalls;
  readonly #reserved = new Map<string, TurnSpeculation>();

  constructor(speculativeCalls: OfferedCalls) {
    this.#speculativeCalls = speculativeCalls;
  }

  reserve(scope: string): TurnSpeculation | undefined {
    if (!this.#speculativeCalls.isServed || this.#reserved.has(scope)) return undefined;
    const speculation = new TurnSpeculation(this.#speculativeCalls, () => this.#reserved.delete(scope));
    this.#reserved.set(scope, speculation);
    return speculation;
  }

  async whenClaimed(scope: string): Promise<void> {
    await this.#reserved.get(scope)?.whenClaimed;
  }
}

export class TurnSpeculation implements Speculation {
  readonly #speculativeCalls: OfferedCalls;
  readonly #onEnd: () => void;
  readonly #claimed = Promise.withResolvers<void>();
  #expected: ExpectedTurn | undefined;
  #state: 'reserved' | 'offered' | 'ended' = 'reserved';

  constructor(speculativeCalls: OfferedCalls, onEnd: () => void) {
    this.#speculativeCalls = speculativeCalls;
    this.#onEnd = onEnd;
  }

  /** Settles when the request has claimed what it creates, or never will. */
  get whenClaimed(): Promise<void> {
    return this.#claimed.promise;
  }

  expect(turn: ExpectedTurn): void {
    this.#expected = turn;
  }

  offer(input: InputItem[]): void {
    if (this.#state !== 'reserved' || !this.#expected || !startsWithModelCall(input)) return;
    this.#state = 'offered';
    const { traceparent } = traceHeaders();
    const trace = traceparent === undefined ? {} : { trace: { traceparent } };
    this.#speculativeCalls.offer({ ...this.#expected, input, ...trace });
  }

  claimed(): void {
    this.#claimed.resolve();
  }

  accepted(turn: TurnAccepted): void {
    if (this.#state === 'offered') this.#speculativeCalls.accept(turn);
    this.#end();
  }

  withdraw(): void {
    if (this.#state === 'offered' && this.#expected) this.#speculativeCalls.withdraw(this.#expected.turnId);
    this.#end();
  }

  #end(): void {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    this.#claimed.resolve();
    this.#onEnd();
  }
}

/** Whether a turn with this input starts with a model call. A turn that answers calls runs these calls first. */
function startsWithModelCall(input: InputItem[]): boolean {
  return input.every(({ type }) => type === 'user.message');
}
