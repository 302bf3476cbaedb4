import { ProtocolError, SdkHttpError } from '@modelcontextprotocol/client';
import { isNoAnswer } from './http-transport.ts';

/** A connection is of no use any more, and what was asked over it can be asked again over another one. */
export class ConnectionLostError extends Error {
  static {
    this.prototype.name = 'ConnectionLostError';
  }

  constructor(cause: unknown) {
    super('the connection was lost', { cause });
  }
}

/**
 * Whether the server refused a request because it no longer knows our session, which it says with 404 (MCP, "Session
 * Management"); the SDKs for TypeScript and Python also do with 400, in these words. It has done nothing then.
 */
export function isSessionLost(error: unknown, sessionId: string | null): boolean {
  if (!(error instanceof SdkHttpError)) return false;
  if (error.status === 404) return sessionId !== null;
  return error.status === 400 && SESSION_UNKNOWN.test(error.message);
}

const SESSION_UNKNOWN = /(?:no valid|invalid|missing) session id|session not found|server not initialized/i;

/** Whether the connection broke. What was asked may have been done, which does not matter to questions. */
export function isBroken(error: unknown): boolean {
  return error instanceof TypeError || (error instanceof ProtocolError && isNoAnswer(error));
}
