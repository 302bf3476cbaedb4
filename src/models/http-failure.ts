import { ResponseTooLargeError } from '../lib/response-bounds.ts';
import { causesOf } from '../lib/errors.ts';
import { ModelError } from './model-error.ts';

/** Reads `Retry-After` (seconds or a date), or `retry-after-ms`, which some servers send. */
export function retryAfter(headers: Headers | undefined): number | undefined {
  const inMs = Number(headers?.get('retry-after-ms') ?? Number.NaN);
  if (inMs >= 0) return inMs;
  const value = headers?.get('retry-after');
  if (!value) return undefined;
  const ms = /^\s*\d+(\.\d+)?\s*$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return ms >= 0 ? ms : undefined;
}

/**
 * The error for a response that exceeds a limit; undefined if `error` has no such cause. It is not retryable: the same
 * request would get the same response.
 */
export function overflowError(error: unknown): ModelError | undefined {
  const overflow = causesOf(error).find((cause) => cause instanceof ResponseTooLargeError);
  return overflow && tooLongError(`was not read: ${overflow.message}`);
}

export function tooLongError(reason: string): ModelError {
  return new ModelError('bad_request', `the model's answer ${reason}`);
}

export function connectionError(error: Error): ModelError {
  const reason = error.cause instanceof Error ? ` (${rootMessage(error.cause)})` : '';
  return new ModelError('connection', `the model cannot be reached${reason}`, { cause: error });
}

/** The error for a response that is cut off, or whose connection broke. */
export function brokenStreamError(error: Error): ModelError {
  return new ModelError('broken_stream', `the model's answer broke off: ${rootMessage(error)}`, { cause: error });
}

export function isAbortError(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError';
}

function rootMessage(error: Error): string {
  return causesOf(error).findLast((cause) => cause instanceof Error)?.message ?? error.message;
}
