import {
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  type ConnectOptions,
  type Transport,
} from '@modelcontextprotocol/client';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { HttpTransport } from './http-transport.ts';
import type { McpEndpoint } from './registry.ts';
import { SseTransport } from './sse-transport.ts';
import { StdioTransport, type StdioOptions } from './stdio-transport.ts';

/** What carries messages between us and a server. */
export interface ServerTransport extends Transport {
  readonly kind: 'streamable-http' | 'sse' | 'stdio';
  /** Why it closed, if we have not closed it. */
  readonly failure?: Error | undefined;
  /** Tells a server that keeps sessions that ours is over. */
  terminateSession?: () => Promise<void>;
}

export interface TransportOptions extends StdioOptions {
  fetch: Fetch;
  answerTimeoutMs: number;
}

/** A way to try a connection. */
export interface ConnectStrategy {
  transport: () => ServerTransport;
  connect: Pick<ConnectOptions, 'prior'>;
  /** Whether the failure of this way speaks for the next one. */
  shouldFallBack: (error: unknown, transport: ServerTransport) => boolean;
}

/** Servers that are asked by `initialize` only: another first question may end them. */
const LEGACY_ONLY = { prior: { kind: 'legacy' as const } };

/** How a server can be reached, the first way first. */
export function connectStrategies(endpoint: McpEndpoint, options: TransportOptions): ConnectStrategy[] {
  if ('command' in endpoint) {
    const transport = (): ServerTransport => new StdioTransport(endpoint, options);
    return [
      { transport, connect: {}, shouldFallBack: endedWhenProbed },
      { transport, connect: LEGACY_ONLY, shouldFallBack: () => false },
    ];
  }
  const { url, headers } = endpoint;
  const { fetch, answerTimeoutMs } = options;
  return [
    { transport: () => new HttpTransport(url, headers, fetch, answerTimeoutMs), connect: {}, shouldFallBack: isNoPost },
    { transport: () => new SseTransport(url, headers, fetch), connect: LEGACY_ONLY, shouldFallBack: () => false },
  ];
}

/** Programs built on some SDKs end when the first message is not `initialize`. */
function endedWhenProbed(error: unknown, { failure }: ServerTransport): boolean {
  return error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed && failure !== undefined;
}

/** What the protocol calls the signs of a server that only knows "HTTP with SSE" (MCP, "Backwards Compatibility"). */
function isNoPost(error: unknown): boolean {
  return error instanceof SdkHttpError && [400, 404, 405].includes(error.status);
}
