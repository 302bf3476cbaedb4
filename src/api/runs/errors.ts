import { ApiError, sessionErrors, type ErrorCode, type ErrorForm } from '../http/errors.ts';

/** A place in a request, from its body on: names of fields, and numbers of members of lists. */
export type Place = readonly PropertyKey[];

/** A place may contain keys that the client chose, so its length is bounded. */
const MAX_PLACE_LENGTH = 300;

/** A place as text, such as `input[3].content[1]`. */
export function placeText(place: Place): string {
  const steps = place.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`));
  return steps.join('').replace(/^\./, '').slice(0, MAX_PLACE_LENGTH);
}

/** The error of a request with the place that is at fault. */
export function refusal(code: ErrorCode, place: Place, message: string): ApiError {
  const param = placeText(place);
  return new ApiError(code, `${param}: ${message}`, { param });
}

/** The errors of runs: those of the Sessions API, with places as llm-sdk's readers expect them. */
export const runErrors: ErrorForm = {
  ...sessionErrors,
  answer: (error) => sessionErrors.answer(withPlaces(ofRun(error))),
};

/** What is missing is the run: it was deleted in the meantime, with its session and its turn. */
function ofRun(error: ApiError): ApiError {
  const isMissing = error.code === 'session_not_found' || error.code === 'turn_not_found';
  return isMissing ? new ApiError('run_not_found', 'the run was deleted', { cause: error }) : error;
}

/** The error of a body that does not fit its schema, with its places as text. */
function withPlaces(error: ApiError): ApiError {
  const first = error.issues.find((issue) => issue.in === 'body');
  if (!first || first.path.length === 0) return error;
  const problems = error.issues.map(({ path, message }) =>
    path.length > 0 ? `${placeText(path)}: ${message}` : message,
  );
  return new ApiError(error.code, problems.join('; '), { param: placeText(first.path), cause: error });
}

/** Whether a request is for runs, by its path. */
export function isRunPath(path: string): boolean {
  return /^\/v1\/(?:agents\/[^/]+\/)?runs(?:\/|$)/.test(path);
}
