import { AISDKError, APICallError } from '@ai-sdk/provider';
import { z } from 'zod';
import { parsedJson } from '../../lib/json.ts';
import { brokenStreamError, connectionError, isAbortError, overflowError, retryAfter } from '../http-failure.ts';
import { ModelError } from '../model-error.ts';
import { reportedFailure } from '../provider-failure.ts';

const streamError = z.object({ message: z.string(), statusCode: z.number().optional(), data: z.unknown() });

/** Converts an error of an adapter to a ModelError with the provider's message; other errors are returned unchanged. */
export function aiSdkFailure(error: unknown): unknown {
  const overflow = overflowError(error);
  if (overflow) return overflow;
  if (error instanceof ModelError || isAbortError(error)) return error;
  if (APICallError.isInstance(error)) return callError(error);
  if (error instanceof TypeError) return brokenStreamError(error);
  if (AISDKError.isInstance(error)) {
    const isOfResponse = /JSONParse|TypeValidation|EmptyResponseBody|InvalidResponseData/.test(error.name);
    return isOfResponse ? brokenStreamError(error) : new ModelError('bad_request', error.message, { cause: error });
  }
  if (error instanceof Error) return error;
  const sent = streamError.safeParse(error);
  if (!sent.success) return error;
  const { message, statusCode: status, data } = sent.data;
  return reportedFailure({ message, status: status ?? 500, error: errorIn(data), retryAfterMs: retryDelay(data) });
}

function callError(error: APICallError): unknown {
  const { statusCode, responseHeaders, cause } = error;
  if (statusCode === undefined) return cause instanceof ModelError ? cause : connectionError(error);
  // The response was a success, and its body could not be read to the end.
  if (statusCode < 300) return isAbortError(cause) ? cause : brokenStreamError(error);
  const { data, message } = error.data === undefined ? unknownBody(error) : error;
  const retryAfterMs = retryAfter(new Headers(responseHeaders)) ?? retryDelay(data);
  return reportedFailure({ message, status: statusCode, error: errorIn(data), retryAfterMs, cause: error });
}

const sentError = z.object({ message: z.string() });

/** A body in a form unknown to the adapter, which reports only its status. A body that is not JSON may be a page. */
function unknownBody({ responseBody = '', message }: APICallError): { data?: unknown; message: string } {
  const data = parsedJson(responseBody);
  if (data === undefined) return { message };
  return { data, message: sentError.safeParse(errorIn(data)).data?.message ?? responseBody };
}

/** The error object of a body: it is the body itself where the adapter has unwrapped it. */
export function errorIn(data: unknown): unknown {
  const { error = data } = z.object({ error: z.unknown() }).partial().safeParse(data).data ?? {};
  return error;
}

const retryInfo = z.object({ retryDelay: z.string().regex(/^\d+(\.\d+)?s$/) });
const errorDetails = z.object({ details: z.array(z.unknown()) });

/** Google sends the wait in the body of the error: `{"error": {"details": [{"retryDelay": "34s"}]}}`. */
function retryDelay(data: unknown): number | undefined {
  const parsed = errorDetails.safeParse(errorIn(data));
  const delays = (parsed.data?.details ?? []).flatMap((one) => retryInfo.safeParse(one).data?.retryDelay ?? []);
  return delays[0] === undefined ? undefined : Number.parseFloat(delays[0]) * 1000;
}
