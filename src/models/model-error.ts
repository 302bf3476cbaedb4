import { truncateMiddle } from '../core/text.ts';
import { redact } from '../lib/redact.ts';

/**
 * How a model call failed. The first group may work a moment later; the second will fail again, whatever one does.
 */
export type ModelFailure =
  | 'rate_limited'
  | 'overloaded'
  | 'timeout'
  | 'connection'
  | 'stalled'
  | 'broken_stream'
  | 'empty_answer'
  | 'bad_request'
  | 'auth'
  | 'refused_model';

const RETRYABLE: ReadonlySet<ModelFailure> = new Set([
  'rate_limited',
  'overloaded',
  'timeout',
  'connection',
  'stalled',
  'broken_stream',
  'empty_answer',
]);

/** As the first word of an answer: the provider did not take the request, so there is nothing to pay for. */
const REFUSALS: ReadonlySet<ModelFailure> = new Set([
  'rate_limited',
  'overloaded',
  'bad_request',
  'auth',
  'refused_model',
]);

/** A provider's words may be a whole page of HTML; the end of a turn says this much of them, in JSON bytes. */
const MAX_MESSAGE_BYTES = 2_000;

/** A model call that failed, with the provider's own words in its message, but for our key if they quote it. */
export class ModelError extends Error {
  static {
    this.prototype.name = 'ModelError';
  }

  readonly failure: ModelFailure;
  /** How long the provider asks to wait, in milliseconds. */
  readonly retryAfterMs: number | undefined;

  constructor(
    failure: ModelFailure,
    message: string,
    options: ErrorOptions & { retryAfterMs?: number | undefined } = {},
  ) {
    super(
      truncateMiddle(redact(message).toWellFormed(), MAX_MESSAGE_BYTES, () => '…'),
      options,
    );
    this.failure = failure;
    this.retryAfterMs = options.retryAfterMs;
  }

  get isRefusal(): boolean {
    return REFUSALS.has(this.failure);
  }

  get isRetryable(): boolean {
    return RETRYABLE.has(this.failure);
  }
}
