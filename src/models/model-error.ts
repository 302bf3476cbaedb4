import { truncateMiddle } from '../core/text.ts';
import { redact } from '../lib/redact.ts';
import { NamedError } from '../lib/errors.ts';

/**
 * How a model call can fail. `isRetryable`: another attempt may succeed. `isRefusal`: if nothing was received before, the
 * provider rejected the request and bills nothing.
 */
const FAILURES = {
  rate_limited: { isRetryable: true, isRefusal: true },
  overloaded: { isRetryable: true, isRefusal: true },
  timeout: { isRetryable: true, isRefusal: false },
  connection: { isRetryable: true, isRefusal: false },
  stalled: { isRetryable: true, isRefusal: false },
  broken_stream: { isRetryable: true, isRefusal: false },
  empty_answer: { isRetryable: true, isRefusal: false },
  bad_request: { isRetryable: false, isRefusal: true },
  auth: { isRetryable: false, isRefusal: true },
  refused_model: { isRetryable: false, isRefusal: true },
};

export type ModelFailure = keyof typeof FAILURES;

const MAYBE_TOO_LONG: ReadonlySet<number> = new Set([400, 413, 422]);

/** A provider's error may be a whole HTML page; the record of the turn's end keeps this much, in JSON bytes. */
const MAX_MESSAGE_BYTES = 2_000;

type Detail =
  | 'retryAfterMs'
  | 'status'
  | 'isTooLong'
  | 'refusesTools'
  | 'isExplained'
  | 'contextTokens'
  | 'namesContext';

type ModelErrorOptions = ErrorOptions & { [D in Detail]?: ModelError[D] | undefined };

/** A model call that failed. The message is the provider's own, with the API key redacted. */
export class ModelError extends NamedError {
  readonly failure: ModelFailure;
  /** The wait that the provider requests, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The HTTP status that the provider has sent. */
  readonly status: number | undefined;
  /** Whether the request was too long for the model. */
  readonly isTooLong: boolean;
  /** Whether the model takes no tools. */
  readonly refusesTools: boolean;
  /** Whether the provider's code, or a parameter that it names, shows what is wrong. */
  readonly isExplained: boolean;
  /** The size of the model's context in tokens, if the provider names it. */
  readonly contextTokens: number | undefined;
  /**
   * Whether `contextTokens` has a field of its own. A text may quote the request: its number must not hold for others.
   */
  readonly namesContext: boolean;

  constructor(failure: ModelFailure, message: string, options: ModelErrorOptions = {}) {
    super(
      truncateMiddle(redact(message).toWellFormed(), MAX_MESSAGE_BYTES, () => '…'),
      options,
    );
    this.failure = failure;
    this.retryAfterMs = options.retryAfterMs;
    this.status = options.status;
    this.isTooLong = options.isTooLong ?? false;
    this.refusesTools = options.refusesTools ?? false;
    this.isExplained = options.isExplained ?? false;
    this.contextTokens = options.contextTokens;
    this.namesContext = options.namesContext ?? false;
  }

  get isRefusal(): boolean {
    return FAILURES[this.failure].isRefusal;
  }

  get isRetryable(): boolean {
    return FAILURES[this.failure].isRetryable;
  }

  /** Whether the request may have been too long, by its status: servers without a specific error for it send these. */
  get mayBeTooLong(): boolean {
    if (this.isTooLong) return true;
    return this.failure === 'bad_request' && !this.isExplained && MAYBE_TOO_LONG.has(this.status ?? 0);
  }

  /** Whether the provider is overloaded or unavailable, so that another provider may succeed. */
  get isOutage(): boolean {
    return this.isRetryable && this.failure !== 'empty_answer';
  }
}
