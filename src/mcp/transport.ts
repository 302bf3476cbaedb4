import type { Transport } from '@modelcontextprotocol/client';

/** Carries messages between the client and an MCP server. */
export interface ServerTransport extends Transport {
  readonly kind: 'streamable-http' | 'sse' | 'stdio';
  /** Why the transport closed; undefined if the client closed it. */
  readonly failure?: Error | undefined;
  /** The process of a program. */
  readonly pid?: number | null;
  /** Set for a program: resolves when it has written to its standard output for the first time. */
  readonly firstOutput?: Promise<void>;
  /** What the program of the server has last written to its standard error. */
  stderrEnd?: () => string;
  /** Ends the session at a server that keeps sessions. */
  terminateSession?: () => Promise<void>;
}
