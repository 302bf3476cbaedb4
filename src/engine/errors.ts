import { PayloadTooLarge } from '../blobs/offload.ts';
import { REFUSAL_CODES } from '../core/input-rules.ts';
import { NamedError } from '../lib/errors.ts';

/** `rejected`: nothing was done, and nothing will be. `failed`: the command may have been carried out. */
type Effect = 'rejected' | 'failed';

/** The error of a request, with the effect that the request had. */
export abstract class RequestError extends NamedError {
  abstract readonly effect: Effect;
}

/** After these the command may have been carried out. */
const FAILURE_CODES = ['unavailable', 'internal_error'] as const;

export type FailureCode = (typeof FAILURE_CODES)[number];

/** The codes of all errors of the engine. A session's workflow rejects commands with codes of this list. */
const CODES = [
  ...REFUSAL_CODES,
  'run_not_found',
  'invalid_cursor',
  'invalid_answer',
  'invalid_arguments',
  'invalid_agent',
  'invalid_rule',
  'feature_not_available',
  'unsupported_part',
  'idempotency_key_reused',
  'file_unavailable',
  'too_many_turns',
  'too_many_sessions',
  'storage_full',
  ...FAILURE_CODES,
] as const;

export type EngineErrorCode = (typeof CODES)[number];

interface EngineErrorOptions extends ErrorOptions {
  param?: string | undefined;
  /** What a face may return beside the message. */
  details?: Readonly<Record<string, unknown>> | undefined;
}

/** An error that the engine reports to a face, which maps the code. The message contains what the client can do. */
export class EngineError extends RequestError {
  readonly code: EngineErrorCode;
  /** The part of the request that is at fault. */
  readonly param: string | undefined;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: EngineErrorCode, message: string, options: EngineErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.param = options.param;
    this.details = options.details;
  }

  get effect(): Effect {
    return FAILURE_CODES.some((code) => code === this.code) ? 'failed' : 'rejected';
  }
}

export function isEngineErrorCode(code: unknown): code is EngineErrorCode {
  return CODES.some((one) => one === code);
}

/** Whether an error means that nothing was done, and nothing will be. An unexpected error does not. */
export function isRejected(error: unknown): boolean {
  return error instanceof RequestError ? error.effect === 'rejected' : error instanceof PayloadTooLarge;
}
