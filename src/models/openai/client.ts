import OpenAI from 'openai';
import type { ResponseBounds } from '../../lib/response-bounds.ts';
import { ModelError } from '../model-error.ts';
import { createModelFetch } from '../model-fetch.ts';
import { findModel } from '../model-lookup.ts';
import type { ModelProvider, ProviderAccess, SilenceLimits } from '../provider.ts';
import { brokenStreamError, connectionError, isAbortError, overflowError, retryAfter } from '../http-failure.ts';
import { reportedFailure } from '../provider-failure.ts';

export type OpenAIOptions = ProviderAccess & SilenceLimits;

const MAX_RESPONSE_MS = 24 * 3_600_000;

/** A client of a server with OpenAI's API, and the lookup of a model there. */
export function createOpenAIClient(
  { apiKey, baseUrl, headers, idleSeconds, onResponse }: ProviderAccess & Pick<SilenceLimits, 'idleSeconds'>,
  bounds: Pick<ResponseBounds, 'maxValues'> = {},
): {
  client: OpenAI;
  find: ModelProvider['find'];
} {
  const modelFetch = createModelFetch(idleSeconds * 1000, { onResponse, ...bounds });
  // The client's own retries would multiply the activity's, and hide failures from the turn's log.
  const client = new OpenAI({
    apiKey,
    baseURL: baseUrl ?? null,
    maxRetries: 0,
    // The maximum duration of a response. A silent response is ended much earlier, by the idle timer.
    timeout: MAX_RESPONSE_MS,
    logLevel: 'off',
    defaultHeaders: headers,
    fetch: (url, init) => modelFetch(url instanceof Request ? url.url : url, init),
  });
  const ownHeaders = { authorization: `Bearer ${apiKey}` };
  const lookup = { url: `${client.baseURL}/models`, ownHeaders, headers, hasList: true };
  return { client, find: (model) => findModel(modelFetch, lookup, model) };
}

/** Whether a server is OpenAI's own. */
export function isOpenAI(baseUrl: string): boolean {
  return /(^|\.)openai\.com$/.test(new URL(baseUrl).hostname);
}

/** Azure serves OpenAI's models, with the same protocol and the same parameters. */
export function isAzure(baseUrl: string): boolean {
  return /\.(openai|cognitiveservices|services\.ai)\.azure\.com$/.test(new URL(baseUrl).hostname);
}

/** Converts an error of the client to a ModelError with the provider's message; other errors are returned unchanged. */
export function openAIFailure(error: unknown): unknown {
  const overflow = overflowError(error);
  if (overflow) return overflow;
  if (error instanceof OpenAI.APIUserAbortError || isAbortError(error)) return error;
  if (error instanceof OpenAI.APIConnectionTimeoutError)
    return new ModelError('timeout', error.message, { cause: error });
  if (error instanceof OpenAI.APIConnectionError) return connectionError(error);
  if (error instanceof OpenAI.APIError) {
    const { status, headers } = error;
    // The client puts the status before the provider's text.
    const message = error.message.replace(`${status} `, '');
    return reportedFailure({ message, status, error: error.error, retryAfterMs: retryAfter(headers), cause: error });
  }
  // JSON cut off in the middle, or a connection that broke while the body was read.
  if (error instanceof SyntaxError || error instanceof TypeError) return brokenStreamError(error);
  return error;
}
