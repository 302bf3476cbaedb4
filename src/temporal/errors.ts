import { isGrpcServiceError } from '@temporalio/client';

/** gRPC status codes, by the numbers of the protocol. */
const DEADLINE_EXCEEDED = 4;
const NOT_FOUND = 5;
const RESOURCE_EXHAUSTED = 8;
/** How Temporal refuses Updates of a workflow whose last task has failed; the next one may not. */
const FAILED_PRECONDITION = 9;
const UNAVAILABLE = 14;

const UNAVAILABLE_CODES = new Set<number>([DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNAVAILABLE]);

/** The workflow does not exist, or no longer. */
export function isNotFound(error: unknown): boolean {
  return grpcCode(error) === NOT_FOUND;
}

/** Temporal can't be reached, or not now: the request may or may not have been carried out. */
export function isTemporalUnavailable(error: unknown): boolean {
  const code = grpcCode(error);
  return code !== undefined && UNAVAILABLE_CODES.has(code);
}

/** The client wraps gRPC's errors in its own, several deep. */
function grpcCode(error: unknown): number | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (isGrpcServiceError(cause)) return cause.code;
  }
  return undefined;
}
