import { ProtocolError, SdkHttpError, type JSONRPCErrorResponse } from '@modelcontextprotocol/client';
import { NamedError } from '../lib/errors.ts';

/** A fault of an MCP server or of the way to it. The message is a predicate that continues after the server's name. */
export class McpServerError extends NamedError {
  /** What the server's program has last written to its standard error; it may still be read when the error is made. */
  readonly stderr: (() => string) | undefined;

  constructor(message: string, { stderr, ...options }: ErrorOptions & { stderr?: () => string } = {}) {
    super(message, options);
    this.stderr = stderr;
  }
}

/** The connection is unusable, and the request can be repeated over a new one. */
export class ConnectionLostError extends NamedError {
  constructor(cause: unknown) {
    super('the connection was lost', { cause });
  }
}

/** Marks the error responses that are made here in place of a server's; no server can send these objects. */
const MARKS = { noResponse: { noResponse: true }, tooLarge: { tooLarge: true }, unreadable: { unreadable: true } };

/** Why a server's response is missing: its body ended without one, it exceeds a bound, or it cannot be read. */
type Lack = keyof typeof MARKS;

function errorFor(lack: Lack, id: string | number, message: string): JSONRPCErrorResponse {
  return { jsonrpc: '2.0', id, error: { code: 0, message, data: MARKS[lack] } };
}

export function noResponseError(id: string | number): JSONRPCErrorResponse {
  return errorFor('noResponse', id, 'the server ended its reply without an answer');
}

export function tooLargeError(id: string | number, { message }: Error): JSONRPCErrorResponse {
  return errorFor('tooLarge', id, message);
}

export function unreadableError(
  id: string | number,
  message = 'its answer is no valid message of the protocol',
): JSONRPCErrorResponse {
  return errorFor('unreadable', id, message);
}

/** Whether an error was made in place of a server's response, for this reason. */
export function standsFor(error: ProtocolError, lack: Lack): boolean {
  return error.data === MARKS[lack];
}

/**
 * Whether the server rejected a request because our session no longer exists there. MCP prescribes HTTP 404 for this
 * ("Session Management"); the SDKs for TypeScript and Python also send 400 with one of these messages. In both cases the
 * server has not executed the request.
 */
export function isSessionLost(error: unknown, sessionId: string | null): boolean {
  if (!(error instanceof SdkHttpError)) return false;
  if (error.status === 404) return sessionId !== null;
  return error.status === 400 && SESSION_UNKNOWN.test(error.message);
}

const SESSION_UNKNOWN = /(?:no valid|invalid|missing) session id|session not found|server not initialized/i;

/** Whether the connection broke. The request may have been executed, which is harmless for requests without effects. */
export function isBroken(error: unknown): boolean {
  return error instanceof TypeError || (error instanceof ProtocolError && standsFor(error, 'noResponse'));
}
