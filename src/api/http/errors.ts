import { z } from 'zod';
import { MAX_PAYLOAD_BYTES, PayloadTooLarge } from '../../blobs/offload.ts';
import { EncryptionKeyMissing } from '../../encryption/cipher.ts';
import { EngineError, type EngineErrorCode } from '../../engine/errors.ts';
import { isUnavailable } from '../../engine/unavailable.ts';
import { SignInError } from '../../mcp/sign-ins.ts';

/**
 * All errors of the API: HTTP status, the type that groups codes for clients, and a description for the documentation.
 * `retryAfter` is in seconds, for errors after which the same request may succeed.
 */
export const ERRORS = {
  invalid_http: {
    status: 400,
    type: 'invalid_request_error',
    description: 'the request is not valid HTTP, or has no Host header',
  },
  invalid_request: {
    status: 400,
    type: 'invalid_request_error',
    description: 'a part of the request is missing or invalid; param names it',
  },
  invalid_json: {
    status: 400,
    type: 'invalid_request_error',
    description: 'the body is not JSON, or is nested too deeply',
  },
  invalid_cursor: {
    status: 400,
    type: 'invalid_request_error',
    description: 'the cursor does not belong to this stream',
  },
  invalid_page_token: {
    status: 400,
    type: 'invalid_request_error',
    description: 'the page token does not belong to this listing',
  },
  invalid_data_uri: {
    status: 400,
    type: 'invalid_request_error',
    description: 'the data of a file is not data:<mime type>;base64,<payload>',
  },
  mixed_input: {
    status: 400,
    type: 'invalid_request_error',
    description: 'the input contains both user messages and answers to tool calls',
  },
  not_local: {
    status: 400,
    type: 'invalid_request_error',
    description: 'without API keys the server accepts only requests from its own machine',
  },
  unauthenticated: {
    status: 401,
    type: 'authentication_error',
    description: 'the request has no API key or token, or an invalid one; the message says why',
  },
  forbidden: {
    status: 403,
    type: 'permission_error',
    description: 'the role of the caller does not allow this; the message says what it allows',
  },
  not_found: { status: 404, type: 'not_found_error', description: 'the path does not exist' },
  agent_not_found: { status: 404, type: 'not_found_error', description: 'the agent does not exist' },
  session_not_found: {
    status: 404,
    type: 'not_found_error',
    description: 'the session does not exist, or the caller may not read it',
  },
  turn_not_found: { status: 404, type: 'not_found_error', description: 'the session has no such turn' },
  action_not_found: {
    status: 404,
    type: 'not_found_error',
    description: 'the action does not exist, or is for others to decide',
  },
  event_not_found: { status: 404, type: 'not_found_error', description: 'the session has no event at this position' },
  file_not_found: { status: 404, type: 'not_found_error', description: 'the session has no such file' },
  sign_in_not_found: {
    status: 404,
    type: 'not_found_error',
    description: 'the sign-in to an MCP server does not exist, has expired, or belongs to another subject',
  },
  connection_not_found: {
    status: 404,
    type: 'not_found_error',
    description: 'the caller has no such connection to an MCP server',
  },
  webhook_not_found: { status: 404, type: 'not_found_error', description: 'the webhook does not exist' },
  run_not_found: {
    status: 404,
    type: 'not_found_error',
    description: 'the run does not exist, or the caller may not read it',
  },
  schedule_not_found: {
    status: 404,
    type: 'not_found_error',
    description: 'the schedule does not exist, or the caller may not read it',
  },
  skill_not_found: { status: 404, type: 'not_found_error', description: 'the skill does not exist' },
  environment_not_found: { status: 404, type: 'not_found_error', description: 'the environment does not exist' },
  method_not_allowed: {
    status: 405,
    type: 'invalid_request_error',
    description: 'the path does not support this method; the header Allow lists those that it supports',
  },
  request_timeout: {
    status: 408,
    type: 'invalid_request_error',
    description: 'the request was not received completely in time',
  },
  already_exists: {
    status: 409,
    type: 'conflict_error',
    description: 'there is something with this name already: change it instead, or choose another name',
  },
  session_closed: {
    status: 409,
    type: 'conflict_error',
    description: 'the session is closed and accepts no further turns',
  },
  turn_running: {
    status: 409,
    type: 'conflict_error',
    description: 'another turn of the session runs, and `on_running` does not let this one replace it',
  },
  run_in_progress: {
    status: 409,
    type: 'conflict_error',
    description: 'the input contains calls of a run that has not ended; the message names it',
  },
  run_ended: { status: 409, type: 'conflict_error', description: 'the run has ended and takes no more answers' },
  call_already_answered: {
    status: 409,
    type: 'conflict_error',
    description: 'the tool call was answered before, with another result',
  },
  request_expired: {
    status: 409,
    type: 'conflict_error',
    description: 'the request was in transit for too long and was not carried out: send it again',
  },
  precondition_failed: {
    status: 412,
    type: 'conflict_error',
    description: 'it was changed since it was read: read it again',
  },
  page_too_large: {
    status: 413,
    type: 'invalid_request_error',
    description: 'the items of the page are too large together: ask for fewer',
  },
  body_too_large: {
    status: 413,
    type: 'invalid_request_error',
    description: 'the body exceeds the limit of the route, at most 30 MB',
  },
  storage_full: {
    status: 413,
    type: 'invalid_request_error',
    description: "the caller's sessions store as much as one subject may: delete some",
  },
  unsupported_media_type: {
    status: 415,
    type: 'invalid_request_error',
    description: 'the encoding or the character set of the body is not supported',
  },
  expectation_failed: {
    status: 417,
    type: 'invalid_request_error',
    description: 'the header Expect may only be 100-continue',
  },
  empty_message: {
    status: 422,
    type: 'unprocessable_error',
    description: 'a user message has neither text nor a file',
  },
  messages_required: {
    status: 422,
    type: 'unprocessable_error',
    description: '`on_running: "steer"` with an input that is not user messages',
  },
  actions_pending: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the previous turn waits for answers to its tool calls',
  },
  call_not_pending: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the input answers a tool call that is not waiting for an answer',
  },
  call_answered_twice: { status: 422, type: 'unprocessable_error', description: 'the input answers a tool call twice' },
  calls_unanswered: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the input leaves tool calls without an answer; the message names them',
  },
  invalid_answer: {
    status: 422,
    type: 'unprocessable_error',
    description: 'a response does not fit what the MCP server of the call asks for; the message names the place',
  },
  invalid_arguments: {
    status: 422,
    type: 'unprocessable_error',
    description: "the edited arguments of a tool call do not fit the tool's schema; param names the place",
  },
  edit_not_allowed: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the arguments of the tool call may not be edited, or not like this; the message says why',
  },
  remember_not_allowed: {
    status: 422,
    type: 'unprocessable_error',
    description: 'no decision on the tool call can be remembered: its policy says who decides each call',
  },
  invalid_items: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the items are not a conversation that a run can continue; param names the place',
  },
  unsupported_part: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the model cannot be given a part of the input or a tool; param names it',
  },
  invalid_context: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the instructions refer to a part of the context that is missing; param names the instruction',
  },
  duplicate_tool_name: {
    status: 422,
    type: 'unprocessable_error',
    description: 'two tools of the run have the same name; param names the second one',
  },
  nothing_pending: {
    status: 409,
    type: 'conflict_error',
    description: 'no tool call of the session waits for an answer',
  },
  nothing_running: {
    status: 409,
    type: 'conflict_error',
    description: 'the session has no running turn',
  },
  too_many_messages: {
    status: 409,
    type: 'conflict_error',
    description: 'the running turn has not read its earlier messages yet',
  },
  budget_exceeded: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the budget of the paused turn was reached, and the request does not raise it above what was spent',
  },
  already_decided: {
    status: 409,
    type: 'conflict_error',
    description: 'the tool call was decided already, or the caller has answered it differently',
  },
  not_an_approver: {
    status: 403,
    type: 'permission_error',
    description: 'the caller may read the session, but may not answer this tool call',
  },
  invalid_agent: {
    status: 422,
    type: 'unprocessable_error',
    description: 'this server cannot run the agent; param names the part at fault',
  },
  feature_not_available: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the agent uses a feature that this server does not have',
  },
  idempotency_key_reused: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the Idempotency-Key was used before with another body',
  },
  content_too_large: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the texts and arguments of the request are too large',
  },
  sign_in_failed: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the authorization server of an MCP server did not complete a sign-in; the message says why',
  },
  too_many_webhooks: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the server has as many webhooks as it allows: delete one',
  },
  too_many_schedules: {
    status: 400,
    type: 'invalid_request_error',
    description: 'the caller, or the server, has as many schedules as it may have: delete one',
  },
  file_unavailable: {
    status: 422,
    type: 'unprocessable_error',
    description: 'a file could not be fetched from its URL; param names it and the message says why',
  },
  headers_too_large: {
    status: 431,
    type: 'invalid_request_error',
    description: 'the URL and the headers exceed 16 KiB',
  },
  rate_limited: {
    status: 429,
    type: 'rate_limit_error',
    retryAfter: 60,
    description:
      'too many requests of the caller in this minute, or too many unknown keys from its address: see Retry-After',
  },
  too_many_turns: {
    status: 429,
    type: 'rate_limit_error',
    retryAfter: 3,
    description: 'too many turns are running, either of the caller or in total',
  },
  too_many_sessions: {
    status: 429,
    type: 'rate_limit_error',
    retryAfter: 3,
    description: 'too many sessions of the Agents API v2 work or wait, or wait for a slot, of all subjects or of one',
  },
  queue_full: {
    status: 429,
    type: 'rate_limit_error',
    retryAfter: 3,
    description: 'too many turns wait in the queue of the session',
  },
  too_many_streams: {
    status: 429,
    type: 'rate_limit_error',
    retryAfter: 3,
    description: 'too many streams are open, either of the caller or in total; a turn that has started continues',
  },
  webhook_unreachable: {
    status: 422,
    type: 'unprocessable_error',
    description: 'the receiver of a webhook has not answered; the message says why',
  },
  internal_error: { status: 500, type: 'server_error', description: 'the server failed to process the request' },
  unavailable: {
    status: 503,
    type: 'server_error',
    retryAfter: 2,
    description: 'the server cannot process the request at the moment: retry',
  },
} as const satisfies Record<string, ErrorRow> & Record<EngineErrorCode, ErrorRow>;

interface ErrorRow {
  status: number;
  type: string;
  retryAfter?: number;
  description: string;
}

export type ErrorCode = keyof typeof ERRORS;

/** The body of every error response. */
export const errorBody = z
  .object({
    error: z.object({
      message: z.string().describe('what is wrong and how to fix it, for people'),
      type: z.enum(Object.values(ERRORS).map(({ type }) => type)),
      code: z.enum(Object.keys(ERRORS)),
      param: z.string().optional().describe('the part of the request that caused the error'),
    }),
  })
  .meta({ id: 'Error' });

/** A place in a request that does not fit its schema. */
export interface RequestIssue {
  in: 'body' | 'query' | 'header';
  path: readonly PropertyKey[];
  /** The kind of the problem, as zod names it; `missing` for a field that is required. */
  code: string;
  message: string;
}

/** The statuses of errors; 402 is used by one face only. */
export type ErrorStatus = (typeof ERRORS)[ErrorCode]['status'] | 402;

/** How a face answers errors: the API's own form is `sessionErrors`. */
export interface ErrorForm {
  /** The schema of the body, for the documentation. */
  body: z.ZodType;
  statusOf(code: ErrorCode): ErrorStatus;
  answer(error: ApiError): { status: number; headers: Record<string, string>; body: object };
}

interface ApiErrorOptions extends ErrorOptions {
  param?: string | undefined;
  details?: Readonly<Record<string, unknown>> | undefined;
  issues?: RequestIssue[];
  retryAfter?: number | undefined;
}

/** An error of the table. The message says what is wrong and what the client can do about it. */
export class ApiError extends Error {
  static {
    this.prototype.name = 'ApiError';
  }

  readonly code: ErrorCode;
  /** The part of the request that caused the error. */
  readonly param: string | undefined;
  /** What is told beside the message, by APIs whose errors have a place for it. */
  readonly details: Readonly<Record<string, unknown>> | undefined;
  /** What is wrong with the request, if it does not fit its schema. */
  readonly issues: readonly RequestIssue[];
  /** In seconds, if it differs from the table's. */
  readonly retryAfter: number | undefined;

  constructor(code: ErrorCode, message: string, options: ApiErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.param = options.param;
    this.details = options.details;
    this.issues = options.issues ?? [];
    this.retryAfter = options.retryAfter;
  }
}

/** Maps any error to an error of the table. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof EngineError) {
    const { param, details } = error;
    return new ApiError(error.code, error.message, { param, details, cause: error.cause ?? error });
  }
  if (error instanceof SignInError) return new ApiError(error.code, error.message, { cause: error.cause ?? error });
  // An operator can configure the key, after which the request succeeds.
  if (error instanceof EncryptionKeyMissing) return new ApiError('unavailable', error.message, { cause: error });
  if (error instanceof PayloadTooLarge) {
    const message = `${error.message}; without its large texts it may have at most ${MAX_PAYLOAD_BYTES} bytes`;
    return new ApiError('content_too_large', message, { cause: error });
  }
  if (isUnavailable(error)) {
    return new ApiError('unavailable', 'the server cannot process this request at the moment: retry', { cause: error });
  }
  return (
    requestError(error) ?? new ApiError('internal_error', 'the server failed to process this request', { cause: error })
  );
}

/** Whether an error means that the request was rejected: it had no effect and will have none. */
export function isRefusal(error: unknown): boolean {
  return ERRORS[toApiError(error).code].status < 500;
}

/** The errors of the Sessions API. */
export const sessionErrors = {
  body: errorBody,
  statusOf: (code) => ERRORS[code].status,
  answer: (error) => {
    const { code, message, param } = error;
    const { status, type } = ERRORS[code];
    return { status, headers: errorHeaders(error), body: { error: { message, type, code, ...(param && { param }) } } };
  },
} satisfies ErrorForm;

/** The headers of an error response, in every form. */
export function errorHeaders({ code, retryAfter: ownRetryAfter }: ApiError): Record<string, string> {
  const { status, retryAfter: defaultRetryAfter }: ErrorRow = ERRORS[code];
  const retryAfter = ownRetryAfter ?? defaultRetryAfter;
  return {
    ...(retryAfter !== undefined && { 'retry-after': String(retryAfter) }),
    // Required by RFC 9110, section 15.5.2.
    ...(status === 401 && { 'www-authenticate': 'Bearer' }),
  };
}

/** The limit that a body parser reports. */
function megabytesOf(error: object): number {
  return 'limit' in error ? Number(error.limit) / 1024 / 1024 : 0;
}

/** Maps the errors of Express and its parsers about a request. */
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
      return new ApiError('invalid_request', 'the body is truncated', { cause: error });
  }
  // `status` alone does not suffice: errors of other libraries carry the status of a response that they received.
  const isFromExpress = error instanceof URIError || 'expose' in error;
  if (!isFromExpress || !('status' in error) || typeof error.status !== 'number' || error.status >= 500)
    return undefined;
  return new ApiError('invalid_request', `the request cannot be parsed: ${error.message}`, { cause: error });
}
