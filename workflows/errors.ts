import { ActivityFailure } from '@temporalio/workflow';

/** The message of anything thrown. Workflow code cannot import `src/lib/errors.ts`. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Why an activity has failed, or anything else that was thrown. */
export function causeOf(error: unknown): unknown {
  return error instanceof ActivityFailure ? (error.cause ?? error) : error;
}
