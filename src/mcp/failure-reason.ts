import { ProtocolError, SdkError, SdkErrorCode, SdkHttpError } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { causesOf } from '../lib/errors.ts';
import { parsedJson } from '../lib/json.ts';
import { redact } from '../lib/redact.ts';
import { ConnectionLostError, McpServerError } from './errors.ts';

const MAX_LENGTH = 300;
/** The characters of a program's standard error that are shown; its end is the most informative. */
const MAX_STDERR_LENGTH = 600;
/** A longer message is cut before it is searched for secrets. */
const MAX_READ_LENGTH = 10_000;

/**
 * Why a server could not be used: one line without secrets, for a model or a person. It is a predicate that continues
 * after the server's name. `hide` hides more secrets, before the line is cut.
 */
export function failureReason(error: unknown, hide: (text: string) => string = (text) => text): string {
  const lineOf = (text: string): string => redact(hide(text)).replaceAll(/\s+/g, ' ').trim().toWellFormed();
  const line = lineOf(reason(error).slice(0, MAX_READ_LENGTH));
  const shown = line.length > MAX_LENGTH ? `${line.slice(0, MAX_LENGTH).toWellFormed()}…` : line;
  const stderr = lineOf(stderrOf(error));
  if (stderr === '') return shown;
  return `${shown}; stderr: ${stderr.length > MAX_STDERR_LENGTH ? `…${stderr.slice(-MAX_STDERR_LENGTH).toWellFormed()}` : stderr}`;
}

/** The last lines of a program whose end, or whose failure to start, is the reason; else empty. */
function stderrOf(error: unknown): string {
  if (error instanceof ConnectionLostError) return stderrOf(error.cause);
  const cause = error instanceof Error ? rootCause(error) : undefined;
  return (cause instanceof McpServerError && cause.stderr?.()) || '';
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

/** The first failure in the chain: the outer ones are only `fetch failed` (fetch) or `probe failed` (SDK). */
function rootCause(error: Error): Error {
  const causes = causesOf(error).filter((cause) => cause instanceof Error);
  return causes.find((cause) => cause instanceof McpServerError) ?? causes.at(-1) ?? error;
}

const requestTimeout = z.object({ timeout: z.number(), hasProgressed: z.boolean().optional() });

/** The SDK reports its own time-outs and an aborted signal with the same error code. */
function timeoutReason({ data }: SdkError): string {
  const timedOut = requestTimeout.safeParse(data);
  if (!timedOut.success) return 'had not answered when the call was cancelled';
  const { timeout, hasProgressed } = timedOut.data;
  return `${hasProgressed ? 'reported no more progress' : 'did not answer'} within ${timeout / 1000} s`;
}

const NETWORK_REASONS: Record<string, string> = {
  ECONNREFUSED: 'refuses connections: is it running?',
  ECONNRESET: 'closed the connection without an answer',
  UND_ERR_SOCKET: 'closed the connection without an answer',
  UND_ERR_CONNECT_TIMEOUT: 'cannot be reached: connecting timed out',
  ETIMEDOUT: 'cannot be reached: connecting timed out',
  ENOTFOUND: 'has a host name that does not resolve',
  EAI_AGAIN: 'has a host name that currently does not resolve',
};

function httpReason(error: SdkHttpError): string {
  const { status } = error;
  const detail = status < 400 ? error.message : errorText(error.data.text);
  const hint =
    status === 401 || status === 403
      ? '; register the server with headers or credentials, or give the toolkit of a run an authorization, that authorize the client'
      : '';
  return `answered with HTTP ${status}${hint}${detail && `: ${detail}`}`;
}

const jsonRpcError = z.object({ error: z.object({ message: z.string() }) });

/** The message in the body of an HTTP error; empty for HTML pages. */
function errorText(body: unknown): string {
  if (typeof body !== 'string') return '';
  const sent = jsonRpcError.safeParse(parsedJson(body)).data?.error.message;
  return sent ?? (body.trimStart().startsWith('<') ? '' : body);
}
