import { truncateMiddle } from '../core/text.ts';
import { redact } from '../lib/redact.ts';

/** How a model call failed. `RETRYABLE` lists the failures for which another attempt may succeed. */
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

/** If nothing was received before one of these failures, the provider rejected the request and bills nothing. */
const REFUSALS: ReadonlySet<ModelFailure> = new Set([
  'rate_limited',
  'overloaded',
  'bad_request',
  'auth',
  'refused_model',
]);

/**
 * What providers say if a request does not fit into the context of its model. They have no common code: OpenAI's is
 * `context_length_exceeded`, Anthropic and Google have none, and other servers repeat OpenAI's older message.
 */
const CONTEXT_EXCEEDED =
  /context_length_exceeded|maximum context length|context window|prompt is too long|exceed context limit|input token count .*exceeds/i;

/** A provider's error may be a whole HTML page; the record of the turn's end keeps this much, in JSON bytes. */
const MAX_MESSAGE_BYTES = 2_000;

/** A model call that failed. The message is the provider's own, with the API key redacted. */
export class ModelError extends Error {
  static {
    this.prototype.name = 'ModelError';
  }

  readonly failure: ModelFailure;
  /** The wait that the provider requests, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The HTTP status that the provider has sent. */
  readonly status: number | undefined;

  constructor(
    failure: ModelFailure,
    message: string,
    options: ErrorOptions & { retryAfterMs?: number | undefined; status?: number | undefined } = {},
  ) {
    super(
      truncateMiddle(redact(message).toWellFormed(), MAX_MESSAGE_BYTES, () => '…'),
      options,
    );
    this.failure = failure;
    this.retryAfterMs = options.retryAfterMs;
    this.status = options.status;
  }

  get isRefusal(): boolean {
    return REFUSALS.has(this.failure);
  }

  get isRetryable(): boolean {
    return RETRYABLE.has(this.failure);
  }

  /** Whether the request was too long for the model. */
  get isTooLong(): boolean {
    return this.failure === 'bad_request' && CONTEXT_EXCEEDED.test(this.message);
  }

  /** Whether the provider is overloaded or unavailable, so that another provider may answer. */
  get isOutage(): boolean {
    return this.isRetryable && this.failure !== 'empty_answer';
  }
}
