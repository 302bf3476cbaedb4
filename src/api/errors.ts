import { MAX_PAYLOAD_BYTES, PayloadTooLarge } from '../blobs/offload.ts';
import { BlobNotFound } from '../blobs/blob-store.ts';
import type { Rejection } from '../log/turn-input.ts';
import { TurnNotFound } from '../logs/turn-logs.ts';
import { isUnavailable } from '../unavailable.ts';

/**
 * Every error that the API answers with: its status, and the type that groups it for clients. `retryAfter` is in
 * seconds, for errors after which the same request may succeed.
 */
export const ERRORS = {
  invalid_http: { status: 400, type: 'invalid_request_error' },
  invalid_request: { status: 400, type: 'invalid_request_error' },
  invalid_json: { status: 400, type: 'invalid_request_error' },
  invalid_cursor: { status: 400, type: 'invalid_request_error' },
  invalid_page_token: { status: 400, type: 'invalid_request_error' },
  invalid_data_uri: { status: 400, type: 'invalid_request_error' },
  mixed_input: { status: 400, type: 'invalid_request_error' },
  not_local: { status: 400, type: 'invalid_request_error' },
  unauthenticated: { status: 401, type: 'authentication_error' },
  not_found: { status: 404, type: 'not_found_error' },
  agent_not_found: { status: 404, type: 'not_found_error' },
  session_not_found: { status: 404, type: 'not_found_error' },
  turn_not_found: { status: 404, type: 'not_found_error' },
  file_not_found: { status: 404, type: 'not_found_error' },
  method_not_allowed: { status: 405, type: 'invalid_request_error' },
  request_timeout: { status: 408, type: 'invalid_request_error' },
  session_closed: { status: 409, type: 'conflict_error' },
  body_too_large: { status: 413, type: 'invalid_request_error' },
  unsupported_media_type: { status: 415, type: 'invalid_request_error' },
  expectation_failed: { status: 417, type: 'invalid_request_error' },
  empty_message: { status: 422, type: 'unprocessable_error' },
  actions_pending: { status: 422, type: 'unprocessable_error' },
  call_not_pending: { status: 422, type: 'unprocessable_error' },
  call_answered_twice: { status: 422, type: 'unprocessable_error' },
  calls_unanswered: { status: 422, type: 'unprocessable_error' },
  invalid_agent: { status: 422, type: 'unprocessable_error' },
  feature_not_available: { status: 422, type: 'unprocessable_error' },
  idempotency_key_reused: { status: 422, type: 'unprocessable_error' },
  content_too_large: { status: 422, type: 'unprocessable_error' },
  headers_too_large: { status: 431, type: 'invalid_request_error' },
  internal_error: { status: 500, type: 'server_error' },
  unavailable: { status: 503, type: 'server_error', retryAfter: 2 },
} as const satisfies Record<string, { status: number; type: string; retryAfter?: number }> &
  Record<Rejection, { status: number; type: string }>;

export type ErrorCode = keyof typeof ERRORS;

/** An error with a place in the table. The message tells the client what to do. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  /** The part of the request that is at fault. */
  readonly param: string | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions & { param?: string | undefined } = {}) {
    super(message, options);
    this.code = code;
    this.param = options.param;
  }
}

/** Finds the place of any error in the table. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof TurnNotFound) return new ApiError('turn_not_found', error.message, { cause: error });
  if (error instanceof BlobNotFound) return new ApiError('file_not_found', 'there is no such file', { cause: error });
  if (error instanceof PayloadTooLarge) {
    const message = `${error.message}; after its large texts are set aside, at most ${MAX_PAYLOAD_BYTES} bytes may remain`;
    return new ApiError('content_too_large', message, { cause: error });
  }
  if (isUnavailable(error)) {
    return new ApiError('unavailable', 'the server can not do this for the moment; try again', { cause: error });
  }
  return (
    requestError(error) ?? new ApiError('internal_error', 'the server failed to answer this request', { cause: error })
  );
}

/** Whether a request is refused with this error: nothing was done, and nothing will be. */
export function isRefusal(error: unknown): boolean {
  return ERRORS[toApiError(error).code].status < 500;
}

/** What is sent for an error. */
export function errorAnswer({ code, message, param }: ApiError) {
  const { status, type, retryAfter }: { status: number; type: string; retryAfter?: number } = ERRORS[code];
  const headers: Record<string, string> = retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) };
  return { status, headers, body: { error: { message, type, code, ...(param && { param }) } } };
}

/** What Express and its parsers find wrong with a request. */
function requestError(error: unknown): ApiError | undefined {
  if (!(error instanceof Error)) return undefined;
  switch ('type' in error && error.type) {
    case 'entity.too.large':
      return new ApiError('body_too_large', 'the body is larger than 30 MB', { cause: error });
    case 'encoding.unsupported':
    case 'charset.unsupported':
      return new ApiError('unsupported_media_type', error.message, { cause: error });
    case 'request.aborted':
    case 'request.size.invalid':
      return new ApiError('invalid_request', 'the body was cut off', { cause: error });
  }
  // Both marks, since other libraries' errors carry the status of somebody else's answer.
  const isTheirs = error instanceof URIError || 'expose' in error;
  if (!isTheirs || !('status' in error) || typeof error.status !== 'number' || error.status >= 500) return undefined;
  return new ApiError('invalid_request', `the request can not be read: ${error.message}`, { cause: error });
}
