import { z } from 'zod';
import {
  ApiError,
  errorHeaders,
  errorKinds,
  type CommonCode,
  type ErrorForm,
  type ErrorKind,
  type ErrorStatus,
} from '../http/errors.ts';

/** The errors that only this API has. */
export const AGENTS_V2_ERRORS = errorKinds({
  event_not_found: [404, 'the session has no event at this position'],
  schedule_not_found: [404, 'the schedule does not exist, or the caller may not read it'],
  skill_not_found: [404, 'the skill does not exist'],
  environment_not_found: [404, 'the environment does not exist'],
  already_exists: [409, 'there is something with this name already: change it instead, or choose another name'],
  precondition_failed: [412, 'it was changed since it was read: read it again'],
  page_too_large: [413, 'the items of the page are too large together: ask for fewer'],
  too_many_schedules: [400, 'the caller, or the server, has as many schedules as it may have: delete one'],
  webhook_unreachable: [422, 'the receiver of a webhook has not answered; the message says why'],
});

/** The error of a field of a request. */
export function invalidField(param: string, message: string): ApiError {
  return new ApiError('invalid_request', `${param}: ${message}`, { param });
}

/** Maps a path in a part of an agent to the path that errors name; the empty path is that part itself. */
export type PathInRequest = (inner: string) => string;

/** Maps the paths in a member of a part. */
export function pathsIn(pathOf: PathInRequest, member: string): PathInRequest {
  return (inner) => pathOf(inner === '' ? member : `${member}.${inner}`);
}

/** The statuses of this API where they differ from those of all faces. */
const STATUSES: Readonly<Record<string, ErrorStatus>> = {
  invalid_request: 422,
  invalid_json: 422,
  invalid_data_uri: 422,
  invalid_cursor: 422,
  // The state of the session does not allow the request.
  actions_pending: 400,
  nothing_running: 400,
  session_closed: 400,
  too_many_messages: 400,
  too_many_webhooks: 400,
  budget_exceeded: 402,
} satisfies Partial<Record<CommonCode, ErrorStatus>>;

const detail = z.object({
  type: z.string().describe('the code of the error; of a field, the kind of its problem'),
  message: z.string().optional(),
  loc: z
    .array(z.union([z.string(), z.int()]))
    .optional()
    .describe('where the problem is: body, query or header, and the path in it'),
  msg: z.string().optional(),
  scope: z.enum(['user', 'org']).optional().describe('whose limit was reached'),
});

/** The detail of an error about a budget that is used up. */
const usedUp = z.object({
  type: z.string(),
  message: z.string(),
  limit: z.number().nullable().describe('in tokens; null if something else is limited'),
  used: z.number().nullable().describe('in tokens'),
  window_end: z.iso.datetime().describe('when the budget is renewed'),
});

/** The body of every error response: a list of problems. Each entry of a 422 has a path. */
const errorBody = z
  .object({
    message: z.string().describe('what is wrong and how to fix it, for people'),
    detail: z.union([z.array(detail), usedUp]),
  })
  .meta({ id: 'Error' });

/** The errors of this API. Clients parse those with status 422 as a list of paths with messages. */
export const agentsV2Errors: ErrorForm = {
  body: () => errorBody,
  statusOf,
  toResponse: (error) => {
    const status = statusOf(error.kind);
    return {
      status,
      headers: errorHeaders(error),
      body: { message: error.message, detail: detailOf(error, status) } satisfies z.infer<typeof errorBody>,
    };
  },
};

function statusOf({ code, status }: ErrorKind): ErrorStatus {
  return STATUSES[code] ?? status;
}

function detailOf(error: ApiError, status: ErrorStatus): z.infer<typeof errorBody>['detail'] {
  if (status === 422) return problemsOf(error);
  const { code, message, details } = error;
  const cause = { type: code, message, ...details };
  return isUsedUp(cause) ? cause : [cause];
}

function isUsedUp(cause: object): cause is z.infer<typeof usedUp> {
  return 'window_end' in cause;
}

function problemsOf({ code, message, param, issues }: ApiError): z.infer<typeof detail>[] {
  if (issues.length === 0) {
    const path = param === undefined ? [] : param.split('.').map((part) => (/^\d+$/.test(part) ? Number(part) : part));
    return [{ type: code, loc: ['body', ...path], msg: message }];
  }
  return issues.map((issue) => ({
    type: issue.code,
    loc: [issue.in, ...issue.path.map((part) => (typeof part === 'number' ? part : String(part)))],
    msg: issue.message,
  }));
}
