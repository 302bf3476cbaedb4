import packageJson from '../../package.json' with { type: 'json' };
import {
  Client,
  METHOD_NOT_FOUND,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  type ClientOptions,
  type ConnectOptions,
} from '@modelcontextprotocol/client';
import { waitOrAbort } from '../lib/abort.ts';
import { errorMessage } from '../lib/errors.ts';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { isJsonObject } from '../lib/json.ts';
import { McpServerError } from './errors.ts';
import { HttpTransport } from './http-transport.ts';
import { boundMessages, type Listing } from './message-bounds.ts';
import type { McpEndpoint } from './registry.ts';
import { SseTransport } from './sse-transport.ts';
import { MODERN_PROTOCOL } from './protocols.ts';
import { StdioTransport, type StdioOptions } from './stdio-transport.ts';
import type { ServerTransport } from './transport.ts';

export interface TransportOptions extends StdioOptions {
  fetch: Fetch;
  /** For the handshake of a server over HTTP. */
  responseTimeoutMs: number;
  /** For a program to write anything, while it starts or is being installed. */
  startTimeoutMs: number;
  /** For the handshake of a program, from its first output on. */
  handshakeTimeoutMs: number;
  /** Called with each transport that is tried. */
  onTry?: (transport: ServerTransport) => void;
}

/** One way to connect to a server. */
interface ConnectStrategy {
  transport: () => ServerTransport;
  /** How the version of the protocol is found. */
  client?: Pick<ClientOptions, 'versionNegotiation' | 'supportedProtocolVersions'>;
  connect?: Pick<ConnectOptions, 'prior'>;
  /** The strategy that the failure of this one suggests. */
  next?: (error: unknown, transport: ServerTransport) => ConnectStrategy | undefined;
}

/** For servers that must receive `initialize` first: any other first request may end them. */
const LEGACY_ONLY = { prior: { kind: 'legacy' as const } };

/** How a server is connected to first. */
function firstStrategy(endpoint: McpEndpoint, options: TransportOptions): ConnectStrategy {
  const auto = { client: { versionNegotiation: probing('auto', options.responseTimeoutMs) } };
  const legacy = { connect: LEGACY_ONLY };
  const modern = { client: { versionNegotiation: probing({ pin: MODERN_PROTOCOL }, handshakeMs(endpoint, options)) } };
  const { protocol } = endpoint;
  // A pinned version is not probed for: a program that responds late is not taken for one that cannot respond.
  const isPinned = protocol === MODERN_PROTOCOL;
  const older = protocol === undefined ? undefined : { ...legacy, client: { supportedProtocolVersions: [protocol] } };
  if ('command' in endpoint) {
    const transport = (): ServerTransport => new StdioTransport(endpoint, options);
    if (isPinned) return { transport, ...modern };
    if (older) return { transport, ...older };
    const next: ConnectStrategy['next'] = (error, { failure }) => {
      if (isModern(error)) return { transport, ...modern };
      return failure && isEndOfConnection(error) ? { transport, ...legacy } : undefined;
    };
    return { transport, ...auto, next };
  }
  const { url, headers } = endpoint;
  const http = (): ServerTransport => new HttpTransport(url, headers, options);
  if (isPinned) return { transport: http, ...modern };
  const sse = (): ServerTransport => new SseTransport(url, headers, options);
  return {
    transport: http,
    ...(older ?? auto),
    next: (error) => (isNoPost(error) ? { transport: sse, ...(older ?? legacy) } : undefined),
  };
}

type VersionNegotiation = NonNullable<ClientOptions['versionNegotiation']>;

function probing(mode: NonNullable<VersionNegotiation['mode']>, timeoutMs: number): VersionNegotiation {
  return { mode, probe: { timeoutMs } };
}

/** The longest time that the handshake with a server may take. */
function handshakeMs(
  endpoint: McpEndpoint,
  { responseTimeoutMs, startTimeoutMs, handshakeTimeoutMs }: TransportOptions,
) {
  return 'command' in endpoint ? startTimeoutMs + handshakeTimeoutMs : responseTimeoutMs;
}

/**
 * Whether a program rejects `initialize` because its connection serves the newer protocol. If a slow program reads the
 * probe only when `initialize` has followed, it accepts the probe, which means that its client has no handshake.
 */
function isModern(error: unknown): boolean {
  if (!(error instanceof ProtocolError)) return false;
  const supported = isJsonObject(error.data) ? error.data['supported'] : undefined;
  const isNamed = Array.isArray(supported) && supported.includes(MODERN_PROTOCOL);
  // Only that version has no `initialize`.
  return isNamed || error.code === METHOD_NOT_FOUND;
}

/**
 * Programs built on some SDKs end when the first message is not `initialize`. If a program reads it only after being
 * installed, `initialize` was sent as well by then, so the error is that of a closed connection.
 */
function isEndOfConnection(error: unknown): boolean {
  if (!(error instanceof SdkError)) return false;
  return error.code === SdkErrorCode.EraNegotiationFailed || error.code === SdkErrorCode.ConnectionClosed;
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

/**
 * Connects to a server. After a failure, tries the strategy that the failure suggests, if there is one.
 * @throws the reason of the signal, an error of the SDK or the network, or an error that names what took too long
 */
export async function openAny(
  endpoint: McpEndpoint,
  options: TransportOptions,
  signal: AbortSignal,
): Promise<OpenedClient> {
  const { budget } = options;
  const timeout = handshakeMs(endpoint, options);
  using limit = handshakeLimit(options);
  const stop = AbortSignal.any([signal, limit.signal]);
  let failure: unknown;
  let strategy: ConnectStrategy | undefined = firstStrategy(endpoint, options);
  while (strategy) {
    const { client: negotiation, connect, next }: ConnectStrategy = strategy;
    const transport = strategy.transport();
    options.onTry?.(transport);
    limit.begin(transport);
    const listing = boundMessages(transport, options);
    const client = new Client(
      { name: packageJson.name, version: packageJson.version },
      { capabilities: { elicitation: { form: {}, url: {} } }, inputRequired: { autoFulfill: false }, ...negotiation },
    );
    try {
      await waitOrAbort(client.connect(transport, { timeout, ...connect }), stop);
      return { client, transport, listing };
    } catch (error) {
      await transport.close();
      if (stop.aborted) throw withStderr(stop.reason, transport);
      // If the older transport fails too, the first failure is the more informative one.
      if (!failure || transport.kind !== 'sse') failure = transport.failure ?? error;
      strategy = next?.(error, transport);
    }
  }
  throw budget.failure ?? failure;
}

/**
 * Bounds the time of a handshake. The SDK limits each of its requests, but neither the whole nor its notification. A
 * program has its own, longer time to write its first byte: it may be installed by the command that starts it, and ending
 * that in the middle can leave an installation that never works.
 */
function handshakeLimit({ responseTimeoutMs, startTimeoutMs, handshakeTimeoutMs }: TransportOptions) {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let current: ServerTransport | undefined;
  const set = (ms: number, reason: Error): void => {
    clearTimeout(timer);
    timer = setTimeout(() => controller.abort(reason), ms);
  };
  return {
    signal: controller.signal,
    /** Starts the time limit of a transport. The transports of a server over HTTP share one. */
    begin: (transport: ServerTransport): void => {
      current = transport;
      if (!transport.firstOutput) {
        if (!timer) set(responseTimeoutMs, handshakeFailure(responseTimeoutMs));
        return;
      }
      const problem = `wrote nothing to its standard output within ${startTimeoutMs / 1000} s`;
      const advice = 'if it needs longer, for example to be installed, raise its start_timeout_seconds';
      set(startTimeoutMs, new McpServerError(`${problem}: ${advice}`));
      void transport.firstOutput.then(() => {
        if (current === transport) set(handshakeTimeoutMs, handshakeFailure(handshakeTimeoutMs));
      });
    },
    [Symbol.dispose]: (): void => {
      current = undefined;
      clearTimeout(timer);
    },
  };
}

function handshakeFailure(ms: number): McpServerError {
  return new McpServerError(`failed: no MCP handshake within ${ms / 1000} s`);
}

/** A program that does not respond may have written the reason to its standard error. */
function withStderr(cause: unknown, { stderrEnd }: ServerTransport): unknown {
  if (!stderrEnd) return cause;
  const message = cause instanceof McpServerError ? cause.message : `failed: ${errorMessage(cause)}`;
  return new McpServerError(message, { cause, stderr: stderrEnd });
}
