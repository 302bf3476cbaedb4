import { InsufficientScopeError, ProtocolError, SdkHttpError, type ContentBlock } from '@modelcontextprotocol/client';
import type { FoundTool, StatefulConnection } from '../core/records/results.ts';
import { NoTokenError } from './client-credentials.ts';
import type { InputRequest } from './elicitation.ts';
import { failureReason } from './failure-reason.ts';
import { standsFor } from './errors.ts';
import type { SignInNeed } from './sign-in-required.ts';

/**
 * How a tool call ended, in terms of the protocol; it decides whether the call may be repeated.
 * - `result`: the tool returned a result. `foundTools` are those that a search for tools has found.
 * - `rejected`: the server responded that it did not execute the call, or that the call failed.
 * - `sign_in_required`: the server did not execute the call, because the user has to sign in first.
 * - `not_sent`: the call cannot have reached the tool.
 * - `unknown`: the request was sent at least in part, and the response does not show whether the call was executed.
 *   `isFinal`: a repetition would end the same way.
 * - `replaced`: the call was not sent, because the state that it was approved for is lost: see `CallOptions.reliesOn`.
 *
 * `connection`: the one that the call was sent on, if the server keeps state for it.
 */
export type CallOutcome =
  | {
      status: 'result';
      isError: boolean;
      content: ContentBlock[];
      structuredContent?: unknown;
      foundTools?: FoundTool[];
      connection?: StatefulConnection;
    }
  | { status: 'sign_in_required'; message: string; signIn: SignInNeed }
  | { status: 'replaced' }
  | { status: 'not_sent'; message: string }
  | { status: 'rejected'; message: string; connection?: StatefulConnection }
  | { status: 'unknown'; message: string; isFinal?: boolean; connection?: StatefulConnection };

/** What a tool has returned. */
export type ToolResult = Extract<CallOutcome, { status: 'result' }>;

/** How a call's request ended: with the call's outcome, or because the server needs input to continue. */
export type CallResponse = CallOutcome | { status: 'input_required'; request: InputRequest };

/** Classifies a call that failed with `error` once nothing more of its request is sent. `sent`: part of it was sent. */
export function classifyFailure(error: unknown, sent: boolean, hide?: (text: string) => string): CallOutcome {
  const message = failureReason(error, hide);
  if (!sent) return { status: 'not_sent', message };
  return { status: isRefusal(error) ? 'rejected' : 'unknown', message };
}

/**
 * Whether a response means that the server has not executed the request and will not do so. Redirects do not mean this
 * (303 means done), nor does 5xx, which gateways send while the server behind them is still working. An unusable result
 * object means that the tool ran, or continues as a task.
 */
function isRefusal(error: unknown): boolean {
  // HTTP 403 with headers that name the missing permission.
  if (error instanceof InsufficientScopeError) return true;
  // The server rejected the token, and no other could be obtained.
  if (error instanceof NoTokenError) return true;
  if (error instanceof SdkHttpError) return error.status >= 400 && error.status < 500 && !TIMEOUTS.has(error.status);
  if (error instanceof ProtocolError) return !standsFor(error, 'noResponse') && !isRelayedTimeout(error);
  return false;
}

/** 408, and nginx's 499 for a closed client connection: both may come from a gateway that had forwarded the request. */
const TIMEOUTS = new Set([408, 499]);

/** Gateways built on the first SDK relay its client-side errors when the server behind them does not respond. */
function isRelayedTimeout({ code, message }: ProtocolError): boolean {
  return (code === -32001 && /timed out/i.test(message)) || (code === -32000 && /connection closed/i.test(message));
}
