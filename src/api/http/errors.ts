import { z } from 'zod';
import { MAX_PAYLOAD_BYTES, PayloadTooLarge } from '../../blobs/offload.ts';
import { EncryptionKeyMissing } from '../../encryption/cipher.ts';
import { EngineError, RequestError, type EngineErrorCode, type FailureCode } from '../../engine/errors.ts';
import { isUnavailable } from '../../engine/unavailable.ts';
import { SignInError } from '../../features/sign-in/sign-ins.ts';

/** The statuses of errors after which the request may have been carried out. */
type FailureStatus = 500 | 503;

/** The statuses of errors, each with the type that groups errors for clients. */
const TYPES = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  405: 'invalid_request_error',
  408: 'invalid_request_error',
  409: 'conflict_error',
  412: 'conflict_error',
  413: 'invalid_request_error',
  415: 'invalid_request_error',
  416: 'invalid_request_error',
  417: 'invalid_request_error',
  422: 'unprocessable_error',
  429: 'rate_limit_error',
  431: 'invalid_request_error',
  500: 'server_error',
  503: 'server_error',
} as const satisfies Record<number, string>;

type TypedStatus = keyof typeof TYPES;

/** The statuses of errors; 402 only in a form that has no types. */
export type ErrorStatus = TypedStatus | 402;

/** A kind of error. */
export interface ErrorKind {
  code: string;
  status: TypedStatus;
  type: (typeof TYPES)[TypedStatus];
  /** In seconds, for errors after which the same request may succeed. */
  retryAfter?: number;
  /** For the documentation. */
  description: string;
}

/** A kind of error in a table, whose key is its code unless it names another. */
type ErrorRow = readonly [
  status: TypedStatus,
  description: string,
  more?: Partial<Pick<ErrorKind, 'code' | 'retryAfter'>>,
];

/** The kinds of errors in a table, by code. */
export function errorKinds<const C extends string>(rows: Record<C, ErrorRow>): Record<C, ErrorKind> {
  const kinds = Object.entries<ErrorRow>(rows).map(([code, [status, description, more]]) => [
    code,
    { code, status, type: TYPES[status], description, ...more } satisfies ErrorKind,
  ]);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- has the keys of the table
  return Object.fromEntries(kinds) as Record<C, ErrorKind>;
}

/** The errors that all faces have. */
const ROWS = {
  invalid_http: [400, 'the request is not valid HTTP, or has no Host header'],
  invalid_request: [400, 'a part of the request is missing or invalid; param names it'],
  invalid_json: [400, 'the body is not JSON, or is nested too deeply'],
  invalid_cursor: [400, 'the cursor does not belong to this stream'],
  invalid_page_token: [400, 'the page token does not belong to this listing'],
  invalid_data_uri: [400, 'the data of a file is not data:<mime type>;base64,<payload>'],
  not_local: [400, 'without API keys the server accepts only requests from its own machine'],
  unauthenticated: [401, 'the request has no API key or token, or an invalid one; the message says why'],
  forbidden: [403, 'the role of the caller does not allow this; the message says what it allows'],
  not_found: [404, 'the path does not exist'],
  agent_not_found: [404, 'the agent does not exist'],
  session_not_found: [404, 'the session does not exist, or the caller may not read it'],
  turn_not_found: [404, 'the session has no such turn'],
  file_not_found: [404, 'the session has no such file'],
  sign_in_not_found: [404, 'the sign-in to an MCP server does not exist, has expired, or belongs to another subject'],
  webhook_not_found: [404, 'the webhook does not exist'],
  run_not_found: [404, 'the run does not exist, or the caller may not read it'],
  method_not_allowed: [405, 'the path does not support this method; the header Allow lists those that it supports'],
  request_timeout: [408, 'the request was not received completely in time'],
  session_closed: [409, 'the session is closed and accepts no further turns'],
  turn_running: [409, 'another turn of the session runs, and `on_running` does not let this one replace it'],
  request_expired: [409, 'the request was in transit for too long and was not carried out: send it again'],
  body_too_large: [413, 'the body exceeds the limit of the route, at most 30 MB'],
  storage_full: [413, "the caller's sessions store as much as one subject may: delete some"],
  unsupported_media_type: [415, 'the encoding or the character set of the body is not supported'],
  range_not_satisfiable: [416, 'the file has fewer bytes than the header Range asks for'],
  expectation_failed: [417, 'the header Expect may only be 100-continue'],
  actions_pending: [422, 'the previous turn waits for answers to its tool calls'],
  call_not_pending: [422, 'the input answers a tool call that is not waiting for an answer'],
  call_answered_twice: [422, 'the input answers a tool call twice'],
  calls_unanswered: [422, 'the input leaves tool calls without an answer; the message names them'],
  invalid_answer: [
    422,
    'a response does not fit what the MCP server of the call asks for; the message names the place',
  ],
  invalid_arguments: [422, "the edited arguments of a tool call do not fit the tool's schema; param names the place"],
  edit_not_allowed: [422, 'the arguments of the tool call may not be edited, or not like this; the message says why'],
  invalid_rule: [
    422,
    'a rule on what agents may do does not match the call beside it, can match nothing, or is one too many',
  ],
  remember_not_allowed: [422, 'no decision on the tool call can be remembered: its policy says who decides each call'],
  unsupported_part: [422, 'the model cannot be given a part of the input or a tool; param names it'],
  nothing_pending: [409, 'no tool call of the session waits for an answer'],
  nothing_running: [409, 'the session has no running turn'],
  too_many_messages: [409, 'the running turn has not read its earlier messages yet'],
  budget_exceeded: [
    422,
    'the budget of the paused turn was reached, and the request does not raise it above what was spent',
  ],
  already_decided: [409, 'the tool call was decided already, or the caller has answered it differently'],
  not_an_approver: [403, 'the caller may read the session, but may not answer this tool call'],
  invalid_agent: [422, 'this server cannot run the agent; param names the part at fault'],
  feature_not_available: [422, 'the agent uses a feature that this server does not have'],
  idempotency_key_reused: [422, 'the Idempotency-Key was used before with another body'],
  content_too_large: [422, 'the texts and arguments of the request are too large'],
  sign_in_failed: [422, 'the authorization server of an MCP server did not complete a sign-in; the message says why'],
  too_many_webhooks: [422, 'the server has as many webhooks as it allows: delete one'],
  file_unavailable: [422, 'a file could not be fetched from its URL; param names it and the message says why'],
  headers_too_large: [431, 'the URL and the headers exceed 16 KiB'],
  rate_limited: [
    429,
    'too many requests of the caller in this minute, or too many unknown keys from its address: see Retry-After',
    { retryAfter: 60 },
  ],
  too_many_turns: [429, 'too many turns are running, either of the caller or in total', { retryAfter: 3 }],
  too_many_sessions: [
    429,
    'too many sessions of the Agents API v2 work or wait, or wait for a slot, of all subjects or of one',
    { retryAfter: 3 },
  ],
  queue_full: [429, 'too many turns wait in the queue of the session', { retryAfter: 3 }],
  too_many_streams: [
    429,
    'too many streams are open, either of the caller or in total; a turn that has started continues',
    { retryAfter: 3 },
  ],
  internal_error: [500, 'the server failed to process the request'],
  unavailable: [503, 'the server cannot process the request at the moment: retry', { retryAfter: 2 }],
} as const satisfies Record<string, ErrorRow> &
  Record<FailureCode, ErrorRow & { 0: FailureStatus }> &
  Record<Exclude<EngineErrorCode, FailureCode>, ErrorRow & { 0: Exclude<ErrorStatus, FailureStatus> }>;

export type CommonCode = keyof typeof ROWS;

export const ERRORS = errorKinds<CommonCode>(ROWS);

/** A part of a request that does not fit its schema. */
export interface RequestIssue {
  in: 'body' | 'query' | 'header';
  path: readonly PropertyKey[];
  /** The kind of the problem, as zod names it; `missing` for a field that is required. */
  code: string;
  message: string;
}

/** How a face responds to errors: by default in the form of `standardErrors`. */
export interface ErrorForm {
  /** The schema of the body, for the documentation, where errors may be of these kinds. */
  body: (kinds: readonly ErrorKind[]) => z.ZodType;
  statusOf(kind: ErrorKind): ErrorStatus;
  toResponse(error: ApiError): { status: number; headers: Record<string, string>; body: object };
}

interface ApiErrorOptions extends ErrorOptions {
  param?: string | undefined;
  details?: Readonly<Record<string, unknown>> | undefined;
  issues?: RequestIssue[];
  retryAfter?: number | undefined;
}

/**
 * An error of a kind that all faces have, by its code, or of a kind that one face has. The message says what is wrong and
 * what the client can do about it.
 */
export class ApiError extends RequestError {
  readonly code: string;
  /** Private, so that log lines have the code alone. */
  readonly #kind: ErrorKind;
  /** The part of the request that caused the error. */
  readonly param: string | undefined;
  /** Fields beside the message, for APIs whose errors have such fields. */
  readonly details: Readonly<Record<string, unknown>> | undefined;
  /** What is wrong with the request, if it does not fit its schema. */
  readonly issues: readonly RequestIssue[];
  /** In seconds; by default that of its kind. */
  readonly retryAfter: number | undefined;

  constructor(kind: CommonCode | ErrorKind, message: string, options: ApiErrorOptions = {}) {
    super(message, options);
    this.#kind = typeof kind === 'string' ? ERRORS[kind] : kind;
    this.code = this.#kind.code;
    this.param = options.param;
    this.details = options.details;
    this.issues = options.issues ?? [];
    this.retryAfter = options.retryAfter ?? this.#kind.retryAfter;
  }

  get kind(): ErrorKind {
    return this.#kind;
  }

  get effect(): 'rejected' | 'failed' {
    return this.#kind.status < 500 ? 'rejected' : 'failed';
  }
}

export function agentNotFound(name: string): ApiError {
  return new ApiError('agent_not_found', `there is no agent ${JSON.stringify(name)}`);
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

/** The form of the errors of all faces without a form of their own. */
export const standardErrors = {
  body: (kinds) =>
    z
      .object({
        error: z.object({
          message: z.string().describe('what is wrong and how to fix it, for people'),
          type: z.enum(kinds.map(({ type }) => type)),
          code: z.enum(kinds.map(({ code }) => code)),
          param: z.string().optional().describe('the part of the request that caused the error'),
        }),
      })
      .meta({ id: 'Error' }),
  statusOf: ({ status }) => status,
  toResponse: (error) => {
    const { kind, message, param } = error;
    const { status, type, code } = kind;
    return { status, headers: errorHeaders(error), body: { error: { message, type, code, ...(param && { param }) } } };
  },
} satisfies ErrorForm;

/** The headers of an error response, in every form. */
export function errorHeaders({ kind, retryAfter }: ApiError): Record<string, string> {
  return {
    ...(retryAfter !== undefined && { 'retry-after': String(retryAfter) }),
    // Required by RFC 9110, section 15.5.2.
    ...(kind.status === 401 && { 'www-authenticate': 'Bearer' }),
  };
}

/** Maps the errors of Express and its parsers about a request. */
function requestError(error: unknown): ApiError | undefined {
  if (!(error instanceof Error)) return undefined;
  switch ('type' in error && error.type) {
    case 'entity.too.large': {
      const megabytes = 'limit' in error ? Number(error.limit) / 1024 / 1024 : 0;
      return new ApiError('body_too_large', `the body is larger than ${megabytes} MB`, { cause: error });
    }
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
