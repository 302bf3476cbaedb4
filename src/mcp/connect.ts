import packageJson from '../../package.json' with { type: 'json' };
import { Client, SdkError, SdkErrorCode, SdkHttpError, type ConnectOptions } from '@modelcontextprotocol/client';
import { waitOrAbort } from '../lib/abort.ts';
import { errorMessage } from '../lib/errors.ts';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { McpServerError } from './errors.ts';
import { HttpTransport } from './http-transport.ts';
import { boundMessages, type Listing } from './message-bounds.ts';
import type { McpEndpoint } from './registry.ts';
import { SseTransport } from './sse-transport.ts';
import { StdioTransport, type StdioOptions } from './stdio-transport.ts';
import type { ServerTransport } from './transport.ts';

export interface TransportOptions extends StdioOptions {
  fetch: Fetch;
  answerTimeoutMs: number;
}

/** One way to connect to a server. */
export interface ConnectStrategy {
  transport: () => ServerTransport;
  connect: Pick<ConnectOptions, 'prior'>;
  /** Whether the failure of this strategy suggests that the next one may succeed. */
  shouldFallBack: (error: unknown, transport: ServerTransport) => boolean;
}

/** For servers that must receive `initialize` first: any other first request may end them. */
const LEGACY_ONLY = { prior: { kind: 'legacy' as const } };

/** The strategies for a server, in the order in which they are tried. */
export function connectStrategies(endpoint: McpEndpoint, options: TransportOptions): ConnectStrategy[] {
  if ('command' in endpoint) {
    const transport = (): ServerTransport => new StdioTransport(endpoint, options);
    return [
      { transport, connect: {}, shouldFallBack: endedWhenProbed },
      { transport, connect: LEGACY_ONLY, shouldFallBack: () => false },
    ];
  }
  const { url, headers } = endpoint;
  return [
    { transport: () => new HttpTransport(url, headers, options), connect: {}, shouldFallBack: isNoPost },
    { transport: () => new SseTransport(url, headers, options), connect: LEGACY_ONLY, shouldFallBack: () => false },
  ];
}

/** Programs built on some SDKs end when the first message is not `initialize`. */
function endedWhenProbed(error: unknown, { failure }: ServerTransport): boolean {
  return error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed && failure !== undefined;
}

/** The statuses by which MCP detects a server that supports only "HTTP with SSE" ("Backwards Compatibility"). */
function isNoPost(error: unknown): boolean {
  return error instanceof SdkHttpError && [400, 404, 405].includes(error.status);
}

export interface OpenedClient {
  client: Client;
  transport: ServerTransport;
  listing: Listing;
}

/** Tries the strategies in order, for as long as each failure allows the next one. */
export async function openAny(
  strategies: ConnectStrategy[],
  { answerTimeoutMs, budget }: Pick<TransportOptions, 'answerTimeoutMs' | 'budget'>,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<OpenedClient> {
  let failure: unknown;
  for (const { transport: create, connect, shouldFallBack } of strategies) {
    const transport = create();
    const listing = boundMessages(transport, budget);
    const client = new Client(
      { name: packageJson.name, version: packageJson.version },
      {
        capabilities: { elicitation: { form: {}, url: {} } },
        versionNegotiation: { mode: 'auto', probe: { timeoutMs: answerTimeoutMs } },
        inputRequired: { autoFulfill: false },
      },
    );
    try {
      await waitOrAbort(client.connect(transport, { timeout: timeoutMs, ...connect }), signal);
      return { client, transport, listing };
    } catch (error) {
      await transport.close();
      if (signal.aborted) throw withStderr(signal.reason, transport);
      // If the older transport fails too, the first failure is the more informative one.
      if (!failure || transport.kind !== 'sse') failure = transport.failure ?? error;
      if (!shouldFallBack(error, transport)) break;
    }
  }
  throw budget.failure ?? failure;
}

/** A program that does not answer may have said why. */
function withStderr(cause: unknown, { stderrEnd }: ServerTransport): unknown {
  return stderrEnd ? new McpServerError(`failed: ${errorMessage(cause)}`, { cause, stderr: stderrEnd }) : cause;
}
