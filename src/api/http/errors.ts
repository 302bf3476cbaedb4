import { z } from 'zod';
import { MAX_PAYLOAD_BYTES, PayloadTooLarge } from '../../blobs/offload.ts';
import { BlobNotFound } from '../../blobs/blob-store.ts';
import { EncryptionKeyMissing } from '../../encryption/cipher.ts';
import { EngineError, type EngineErrorCode } from '../../engine/errors.ts';
import { isUnavailable } from '../../engine/unavailable.ts';

/**
 * Every error that the API answers with: its status, the type that groups it for clients, and what it means, for the
 * documentation. `retryAfter` is in seconds, for errors after which the same request may succeed.
 */
export const ERRORS = {
  invalid_http: {
    status: 400,
    type: 'invalid_request_error',
    means: 'the request is not valid HTTP, or has no Host header',
  },
  invalid_request: {
    status: 400,
    type: 'invalid_request_error',
    means: 'a part of the request is missing or wrong: param names it',
  },
  invalid_json: { status: 400, type: 'invalid_request_error', means: 'the body is not JSON, or is nested too deep' },
  invalid_cursor: { status: 400, type: 'invalid_request_error', means: 'the cursor is not from a stream of this turn' },
  invalid_page_token: { status: 400, type: 'invalid_request_error', means: 'the page token is not from this listing' },
  invalid_data_uri: {
    status: 400,
    type: 'invalid_request_error',
    means: 'the data of a file is not data:<mime type>;base64,<payload>',
  },
  mixed_input: {
    status: 400,
    type: 'invalid_request_error',
    means: 'user messages and answers to tool calls were sent together',
  },
  not_local: {
    status: 400,
    type: 'invalid_request_error',
    means: 'without API keys the server answers this machine only',
  },
  unauthenticated: {
    status: 401,
    type: 'authentication_error',
    means: 'there is no API key or token in the request, or it is not good here: the message says why',
  },
  forbidden: {
    status: 403,
    type: 'permission_error',
    means: 'the role of the key does not allow this: the message says what it does allow',
  },
  not_found: { status: 404, type: 'not_found_error', means: 'there is nothing at this path' },
  agent_not_found: { status: 404, type: 'not_found_error', means: 'there is no such agent' },
  session_not_found: {
    status: 404,
    type: 'not_found_error',
    means: "there is no such session, or it is somebody else's",
  },
  turn_not_found: { status: 404, type: 'not_found_error', means: 'the session has no such turn' },
  file_not_found: { status: 404, type: 'not_found_error', means: 'the session has no such file' },
  method_not_allowed: {
    status: 405,
    type: 'invalid_request_error',
    means: 'the path has other methods: the header Allow lists them',
  },
  request_timeout: { status: 408, type: 'invalid_request_error', means: 'the request did not come in time' },
  session_closed: { status: 409, type: 'conflict_error', means: 'the session takes no further turns' },
  request_expired: {
    status: 409,
    type: 'conflict_error',
    means: 'the request was under way for too long, and was not carried out: send it again',
  },
  body_too_large: {
    status: 413,
    type: 'invalid_request_error',
    means: 'the body is larger than it may be: 30 MB at most',
  },
  unsupported_media_type: {
    status: 415,
    type: 'invalid_request_error',
    means: 'the body has an encoding or a character set that is not known here',
  },
  expectation_failed: {
    status: 417,
    type: 'invalid_request_error',
    means: 'the header Expect may only be 100-continue',
  },
  empty_message: { status: 422, type: 'unprocessable_error', means: 'a user message has neither text nor a file' },
  actions_pending: {
    status: 422,
    type: 'unprocessable_error',
    means: 'the previous turn waits for answers to its tool calls',
  },
  call_not_pending: {
    status: 422,
    type: 'unprocessable_error',
    means: 'an answer is for a call that does not wait for one',
  },
  call_answered_twice: { status: 422, type: 'unprocessable_error', means: 'the input answers one call twice' },
  calls_unanswered: {
    status: 422,
    type: 'unprocessable_error',
    means: 'the input leaves calls without an answer: the message names them',
  },
  invalid_agent: {
    status: 422,
    type: 'unprocessable_error',
    means: 'this server can not run the agent: param names the part at fault',
  },
  feature_not_available: {
    status: 422,
    type: 'unprocessable_error',
    means: 'this server does not have what the agent asks for',
  },
  idempotency_key_reused: {
    status: 422,
    type: 'unprocessable_error',
    means: 'the Idempotency-Key came before with another body',
  },
  content_too_large: {
    status: 422,
    type: 'unprocessable_error',
    means: 'texts and arguments of the request take too much',
  },
  file_unavailable: {
    status: 422,
    type: 'unprocessable_error',
    means: 'a file could not be had from its URL: param names it, the message says why',
  },
  headers_too_large: {
    status: 431,
    type: 'invalid_request_error',
    means: 'the URL and the headers are larger than 16 KiB',
  },
  rate_limited: {
    status: 429,
    type: 'rate_limit_error',
    retryAfter: 60,
    means: 'too many requests in this minute, or too many unknown keys: wait as long as retry-after says',
  },
  too_many_turns: {
    status: 429,
    type: 'rate_limit_error',
    retryAfter: 3,
    means: 'too many turns run, of yours or in all',
  },
  too_many_streams: {
    status: 429,
    type: 'rate_limit_error',
    retryAfter: 3,
    means: 'too many streams are open, of yours or in all; a turn that has begun goes on',
  },
  internal_error: { status: 500, type: 'server_error', means: 'the server failed' },
  unavailable: {
    status: 503,
    type: 'server_error',
    retryAfter: 2,
    means: 'the server can not do this for the moment: try again',
  },
} as const satisfies Record<string, ErrorRow> & Record<EngineErrorCode, ErrorRow>;

interface ErrorRow {
  status: number;
  type: string;
  retryAfter?: number;
  means: string;
}

export type ErrorCode = keyof typeof ERRORS;

/** The body of every answer that is not a success. */
export const errorBody = z
  .object({
    error: z.object({
      message: z.string().describe('for people: what is wrong, and what to do'),
      type: z.enum(Object.values(ERRORS).map(({ type }) => type)),
      code: z.enum(Object.keys(ERRORS)),
      param: z.string().optional().describe('the part of the request that is at fault'),
    }),
  })
  .meta({ id: 'Error' });

interface ApiErrorOptions extends ErrorOptions {
  param?: string | undefined;
  retryAfter?: number | undefined;
}

/** An error with a place in the table. The message tells the client what to do. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  /** The part of the request that is at fault. */
  readonly param: string | undefined;
  /** In seconds, where it is not what the table says. */
  readonly retryAfter: number | undefined;

  constructor(code: ErrorCode, message: string, options: ApiErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.param = options.param;
    this.retryAfter = options.retryAfter;
  }
}

/** Finds the place of any error in the table. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof EngineError) {
    return new ApiError(error.code, error.message, { param: error.param, cause: error.cause ?? error });
  }
  if (error instanceof BlobNotFound) return new ApiError('file_not_found', 'there is no such file', { cause: error });
  // Whoever has set up the server can mend it, and the request may succeed then.
  if (error instanceof EncryptionKeyMissing) return new ApiError('unavailable', error.message, { cause: error });
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
export function errorAnswer(error: ApiError) {
  const { code, message, param } = error;
  const { status, type, retryAfter: usual }: ErrorRow = ERRORS[code];
  const retryAfter = error.retryAfter ?? usual;
  const headers: Record<string, string> = {
    ...(retryAfter !== undefined && { 'retry-after': String(retryAfter) }),
    // RFC 9110 asks for it.
    ...(status === 401 && { 'www-authenticate': 'Bearer' }),
  };
  return { status, headers, body: { error: { message, type, code, ...(param && { param }) } } };
}

/** The limit that a parser has named. */
function megabytesOf(error: object): number {
  return 'limit' in error ? Number(error.limit) / 1024 / 1024 : 0;
}

/** What Express and its parsers find wrong with a request. */
function requestError(error: unknown): ApiError | undefined {
  if (!(error instanceof Error)) return undefined;
  switch ('type' in error && error.type) {
    case 'entity.too.large':
      return new ApiError('body_too_large', `the body is larger than ${megabytesOf(error)} MB`, { cause: error });
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
