import type { RecordBase, WithoutId } from './base.ts';
import type { MessagePlan } from './message.ts';
import type { PendingCall } from './pending.ts';

export interface McpInitialized extends RecordBase {
  kind: 'mcp.initialize';
  threadId: string;
  servers: {
    id: string;
    name: string;
    sessionId: string | null;
    transport: 'streamable-http' | 'sse' | 'stdio';
    /** Warnings about the server for the agent's author. */
    warnings?: string[];
    /** Absent if the server requires no sign-in. */
    account?: ConnectedAccount;
  }[];
  /** The servers whose tools are not offered, and why; absent if there are none. */
  unavailable?: { name: string; reason: string }[];
}

/** The servers of an agent, as they were found. */
export type FoundServers = Pick<McpInitialized, 'servers' | 'unavailable'>;

/** The account at an authorization server with which a session uses an MCP server. */
export interface ConnectedAccount {
  grantId: string;
  /** Null if the authorization server did not name it. */
  account: string | null;
  issuer: string;
  /** When the owner signed in. */
  since: string;
}

/** The record before a thread's first message. It has the message's time, so that every attempt makes the same one. */
export function serversConnected(
  { createdAt: at, threadId }: MessagePlan,
  found: FoundServers,
): WithoutId<McpInitialized> {
  return { kind: 'mcp.initialize', at, threadId, ...found };
}

/** An MCP server to which the owner of the session has to sign in. */
export interface ServerSignIn {
  id: string;
  name: string;
  signInId: string;
  authUrl: string;
}

/** Servers require a sign-in. The thread waits for it. */
export interface AuthRequired extends RecordBase {
  kind: 'mcp.auth_required';
  threadId: string;
  servers: ServerSignIn[];
  /** The calls that the servers did not execute, and that run after the sign-in. */
  calls: PendingCall[];
}
