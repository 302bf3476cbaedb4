import {
  InsufficientScopeError,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  type ContentBlock,
} from '@modelcontextprotocol/client';
import type { FoundTool } from '../core/records.ts';
import { NoTokenError } from './client-credentials.ts';
import { failureReason } from './failure-reason.ts';
import { isNoAnswer } from './errors.ts';

/**
 * How a tool call ended, in terms of the protocol; it decides whether the call may be repeated.
 * - `result`: the tool returned a result. `foundTools` are those that a search for tools has found.
 * - `rejected`: the server answered that it did not execute the call, or that it failed.
 * - `not_sent`: the call cannot have reached the tool.
 * - `unknown`: the request was sent at least in part, and the reply does not say whether the call was executed.
 *   `isFinal`: a repetition would end the same way.
 */
export type CallOutcome =
  | {
      status: 'result';
      isError: boolean;
      content: ContentBlock[];
      structuredContent?: unknown;
      foundTools?: FoundTool[];
    }
  | { status: 'rejected' | 'not_sent' | 'unknown'; message: string; isFinal?: boolean };

/** Judges a call that failed with `error`, after nothing more of its request is sent; `sent`: something has been. */
export function classifyFailure(error: unknown, sent: boolean): CallOutcome {
  const message = failureReason(error);
  if (!sent) return { status: 'not_sent', message };
  return { status: isRefusal(error) ? 'rejected' : 'unknown', message };
}

/**
 * Whether an answer says that the server has not done, and will not do, what it was asked. Redirects do not (a 303 means
 * done), nor do 5xx, which gateways send for servers that went on working. Any result object that can't be used stands
 * for a tool that ran, or that runs on as a task; only one that asks for input stands for a tool that stopped.
 */
function isRefusal(error: unknown): boolean {
  // HTTP 403 whose headers say which permission is missing.
  if (error instanceof InsufficientScopeError) return true;
  // It has refused our token, and there is no other.
  if (error instanceof NoTokenError) return true;
  if (error instanceof SdkHttpError) return error.status >= 400 && error.status < 500 && !TIMEOUTS.has(error.status);
  if (error instanceof ProtocolError) return !isNoAnswer(error) && !isRelayedTimeout(error);
  return asksForInput(error);
}

/** 408, and what nginx calls a request whose client went away: both may come from a gateway that had passed it on. */
const TIMEOUTS = new Set([408, 499]);

/** Gateways built on the first SDK answer with its client-side errors when the server behind them does not. */
function isRelayedTimeout({ code, message }: ProtocolError): boolean {
  return (code === -32001 && /timed out/i.test(message)) || (code === -32000 && /connection closed/i.test(message));
}

function asksForInput(error: unknown): boolean {
  if (!(error instanceof SdkError) || error.code !== SdkErrorCode.UnsupportedResultType) return false;
  const { data } = error;
  return typeof data === 'object' && data !== null && 'resultType' in data && data.resultType === 'input_required';
}
