import { ProtocolError, SdkError, SdkErrorCode, SdkHttpError } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { redact } from '../lib/redact.ts';
import { ConnectionLostError } from './errors.ts';

const MAX_LENGTH = 300;
/** What is left of megabytes before secrets are looked for in them. */
const MAX_READ_LENGTH = 10_000;

/** What is wrong with a server, in words of ours that read on after its name. */
export class McpServerError extends Error {
  static {
    this.prototype.name = 'McpServerError';
  }
}

/** Why a server could not be used, in one line for a model or a person, without secrets; reads on after its name. */
export function failureReason(error: unknown): string {
  const line = redact(reason(error).slice(0, MAX_READ_LENGTH)).replaceAll(/\s+/g, ' ').trim().toWellFormed();
  return line.length > MAX_LENGTH ? `${line.slice(0, MAX_LENGTH).toWellFormed()}…` : line;
}

function reason(error: unknown): string {
  if (error instanceof ConnectionLostError) return reason(error.cause);
  if (error instanceof SdkHttpError) return httpReason(error);
  if (error instanceof ProtocolError) return `answered with an error: ${error.message}`;
  if (!(error instanceof Error)) return `failed: ${String(error)}`;
  if (error instanceof SdkError && error.code === SdkErrorCode.RequestTimeout) return timeoutReason(error);
  if (error instanceof SdkError && error.code === SdkErrorCode.ConnectionClosed) return 'was disconnected';
  const cause = rootCause(error);
  if (cause instanceof McpServerError) return cause.message;
  const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : '';
  return NETWORK_REASONS[code] ?? `failed: ${cause.message || code || cause.name}`;
}

/** fetch says `fetch failed`, the SDK `probe failed`; the first failure says what happened. */
function rootCause(error: Error): Error {
  let root = error;
  while (root.cause instanceof Error && !(root instanceof McpServerError)) root = root.cause;
  return root;
}

const requestTimeout = z.object({ timeout: z.number() });

/** The SDK reports the end of its own time-outs and an aborted signal as the same kind of error. */
function timeoutReason({ data }: SdkError): string {
  const timedOut = requestTimeout.safeParse(data);
  if (!timedOut.success) return 'had not answered when the call was cancelled';
  return `did not answer within ${timedOut.data.timeout / 1000} s`;
}

const NETWORK_REASONS: Record<string, string> = {
  ECONNREFUSED: 'refuses connections: is it running?',
  ECONNRESET: 'closed the connection without an answer',
  UND_ERR_SOCKET: 'closed the connection without an answer',
  UND_ERR_CONNECT_TIMEOUT: 'can not be reached: connecting timed out',
  ETIMEDOUT: 'can not be reached: connecting timed out',
  ENOTFOUND: 'has a host name that does not resolve',
  EAI_AGAIN: 'has a host name that does not resolve at the moment',
};

function httpReason(error: SdkHttpError): string {
  const { status } = error;
  const said = status < 400 ? error.message : errorText(error.data.text);
  const hint =
    status === 401 || status === 403 ? '; a registered server can be given headers or credentials to authorize us' : '';
  return `answered with HTTP ${status}${hint}${said && `: ${said}`}`;
}

const jsonRpcError = z.object({ error: z.object({ message: z.string() }) });

/** What the body of an HTTP error says, if it is meant to be read by us: pages of HTML are not. */
function errorText(body: unknown): string {
  if (typeof body !== 'string') return '';
  try {
    return jsonRpcError.parse(JSON.parse(body)).error.message;
  } catch {
    return body.trimStart().startsWith('<') ? '' : body;
  }
}
