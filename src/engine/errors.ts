import { PayloadTooLarge } from '../blobs/offload.ts';
import type { Rejection } from '../core/input-rules.ts';

/** `rejected`: nothing was done, and nothing will be. `failed`: the command may have been carried out. */
type Effect = 'rejected' | 'failed';

/** Every error of the engine by its code. A session's workflow rejects commands with codes of this table. */
const EFFECTS = {
  forbidden: 'rejected',
  session_not_found: 'rejected',
  session_closed: 'rejected',
  turn_not_found: 'rejected',
  run_not_found: 'rejected',
  turn_running: 'rejected',
  queue_full: 'rejected',
  invalid_cursor: 'rejected',
  request_expired: 'rejected',
  actions_pending: 'rejected',
  call_not_pending: 'rejected',
  call_answered_twice: 'rejected',
  calls_unanswered: 'rejected',
  invalid_answer: 'rejected',
  invalid_arguments: 'rejected',
  edit_not_allowed: 'rejected',
  remember_not_allowed: 'rejected',
  nothing_pending: 'rejected',
  nothing_running: 'rejected',
  too_many_messages: 'rejected',
  budget_exceeded: 'rejected',
  already_decided: 'rejected',
  not_an_approver: 'rejected',
  invalid_agent: 'rejected',
  feature_not_available: 'rejected',
  unsupported_part: 'rejected',
  idempotency_key_reused: 'rejected',
  file_unavailable: 'rejected',
  too_many_turns: 'rejected',
  too_many_sessions: 'rejected',
  storage_full: 'rejected',
  unavailable: 'failed',
  internal_error: 'failed',
} as const satisfies Record<string, Effect> & Record<Rejection, Effect>;

export type EngineErrorCode = keyof typeof EFFECTS;

interface EngineErrorOptions extends ErrorOptions {
  param?: string | undefined;
  /** What a face may tell beside the message. */
  details?: Readonly<Record<string, unknown>> | undefined;
}

/** An error that the engine reports to a face, which maps the code. The message tells the client what to do. */
export class EngineError extends Error {
  static {
    this.prototype.name = 'EngineError';
  }

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
}

export function isEngineErrorCode(code: unknown): code is EngineErrorCode {
  return typeof code === 'string' && Object.hasOwn(EFFECTS, code);
}

/** Whether an error means that nothing was done, and nothing will be. An unexpected error does not. */
export function isRejected(error: unknown): boolean {
  if (error instanceof EngineError) return EFFECTS[error.code] === 'rejected';
  return error instanceof PayloadTooLarge;
}
