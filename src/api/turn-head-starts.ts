import type { HeadStart, HeadStarts } from '../live/head-starts.ts';
import type { InputItem } from '../log/records.ts';
import { traceHeaders } from '../telemetry/propagation.ts';

type Beginning = Omit<HeadStart, 'input' | 'trace'>;

/**
 * The head starts that an API gives. Of the requests of one session that are on their way together only the first may
 * get one: nobody knows yet which of them are the same, nor which has to end before the next asks its model.
 */
export class TurnHeadStarts {
  readonly #headStarts: Pick<HeadStarts, 'offer' | 'withdraw'>;
  readonly #sessions = new Set<string>();

  constructor(headStarts: Pick<HeadStarts, 'offer' | 'withdraw'>) {
    this.#headStarts = headStarts;
  }

  /** To be closed or withdrawn. Undefined if the turn can't have one. */
  prepare(beginning: Beginning): TurnHeadStart | undefined {
    const { sessionId } = beginning;
    if (this.#sessions.has(sessionId)) return undefined;
    this.#sessions.add(sessionId);
    return new TurnHeadStart(this.#headStarts, beginning, () => this.#sessions.delete(sessionId));
  }
}

/** Whether the model is asked first: calls that are answered are run before. */
export function beginsWithModel(input: { type: string }[]): boolean {
  return input.every(({ type }) => type === 'user.message');
}

/** Is given once, as early as it can be, and taken back if there is no turn. */
export class TurnHeadStart {
  readonly #headStarts: Pick<HeadStarts, 'offer' | 'withdraw'>;
  readonly #beginning: Beginning;
  readonly #onOver: () => void;
  #state: 'possible' | 'given' | 'over' = 'possible';

  constructor(headStarts: Pick<HeadStarts, 'offer' | 'withdraw'>, beginning: Beginning, onOver: () => void) {
    this.#headStarts = headStarts;
    this.#beginning = beginning;
    this.#onOver = onOver;
  }

  /** The session will most probably accept a turn with this input, so the model may begin, if the turn begins with it. */
  give(input: InputItem[]): void {
    if (this.#state !== 'possible' || !beginsWithModel(input)) return;
    this.#state = 'given';
    const { traceparent } = traceHeaders();
    const trace = traceparent === undefined ? {} : { trace: { traceparent } };
    this.#headStarts.offer({ ...this.#beginning, input, ...trace });
  }

  /** The session has accepted the turn: what was not given comes too late. */
  close(): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#onOver();
  }

  /** There will be no such turn, unless the session has accepted it. */
  withdraw(): void {
    if (this.#state === 'given') this.#headStarts.withdraw(this.#beginning.turnId);
    this.close();
  }
}
