import { isGrpcServiceError, isRetryableError, WorkflowNotFoundError } from '@temporalio/client';
import { causesOf } from '../lib/errors.ts';

type GrpcStatus = Parameters<typeof isRetryableError>[0];

/** gRPC status codes, by the numbers of the protocol. */
const DEADLINE_EXCEEDED = 4;
const NOT_FOUND = 5;
const ALREADY_EXISTS = 6;
/** Temporal rejects Updates with this while the workflow's last task has failed; the next task may succeed. */
const FAILED_PRECONDITION = 9;

/** Whether the workflow does not exist, or no longer. */
export function isNotFound(error: unknown): boolean {
  // The client replaces the gRPC error of a signal by one without a cause.
  if (error instanceof WorkflowNotFoundError) return true;
  const code: number | undefined = grpcError(error)?.code;
  return code === NOT_FOUND;
}

export function isAlreadyExists(error: unknown): boolean {
  const code: number | undefined = grpcError(error)?.code;
  return code === ALREADY_EXISTS;
}

/** Whether Temporal is unavailable. The request may or may not have been carried out. */
export function isTemporalUnavailable(error: unknown): boolean {
  const status = grpcError(error);
  if (!status) return false;
  const code: number = status.code;
  return code === DEADLINE_EXCEEDED || code === FAILED_PRECONDITION || isRetryableError(status);
}

/** Finds the gRPC error that the client has wrapped in its own errors, several levels deep. */
function grpcError(error: unknown): GrpcStatus | undefined {
  return causesOf(error).find(isGrpcServiceError);
}
