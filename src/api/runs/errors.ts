import {
  ApiError,
  errorKinds,
  standardErrors,
  type CommonCode,
  type ErrorForm,
  type ErrorKind,
} from '../http/errors.ts';

/** The errors that only runs have. */
export const RUN_ERRORS = errorKinds({
  run_in_progress: [409, 'the input contains calls of a run that has not ended; the message names it'],
  run_ended: [409, 'the run has ended and takes no more answers'],
  call_already_answered: [409, 'the tool call was answered before, with another result'],
  invalid_items: [422, 'the items are not a conversation that a run can continue; param names the place'],
  invalid_context: [
    422,
    'the instructions refer to a part of the context that is missing; param names the instruction',
  ],
  duplicate_tool_name: [422, 'two tools of the run have the same name; param names the second one'],
});

/** A path in a request, from its body on: names of fields, and indexes of members of lists. */
export type FieldPath = readonly PropertyKey[];

/** A path may contain keys that the client chose, so its length is bounded. */
const MAX_PATH_LENGTH = 300;

/** A path as text, such as `input[3].content[1]`. */
export function pathText(fieldPath: FieldPath): string {
  const steps = fieldPath.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`));
  return steps.join('').replace(/^\./, '').slice(0, MAX_PATH_LENGTH);
}

/** The error of a request with the path that is at fault. */
export function refusal(kind: CommonCode | ErrorKind, fieldPath: FieldPath, message: string): ApiError {
  const param = pathText(fieldPath);
  return new ApiError(kind, `${param}: ${message}`, { param });
}

/** The errors of runs: in the standard form, with paths as llm-sdk's readers expect them. */
export const runErrors: ErrorForm = {
  ...standardErrors,
  toResponse: (error) => standardErrors.toResponse(withPaths(ofRun(error))),
};

/** Maps a missing session or turn to a missing run: it was deleted meanwhile, with its session and its turn. */
function ofRun(error: ApiError): ApiError {
  const isMissing = error.code === 'session_not_found' || error.code === 'turn_not_found';
  return isMissing ? new ApiError('run_not_found', 'the run was deleted', { cause: error }) : error;
}

/** The error of a body that does not fit its schema, with its paths as text. */
function withPaths(error: ApiError): ApiError {
  const first = error.issues.find((issue) => issue.in === 'body');
  if (!first || first.path.length === 0) return error;
  const problems = error.issues.map(({ path, message }) =>
    path.length > 0 ? `${pathText(path)}: ${message}` : message,
  );
  return new ApiError(error.kind, problems.join('; '), { param: pathText(first.path), cause: error });
}
