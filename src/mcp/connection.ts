import { isDeepStrictEqual } from 'node:util';
import {
  type Client,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  type CallToolResult,
  type Tool,
} from '@modelcontextprotocol/client';
import { AnswerTooLargeError } from '../lib/answer-bounds.ts';
import { classifyFailure, type CallOutcome } from './call-outcome.ts';
import { connectStrategies, openAny, type OpenedClient, type TransportOptions } from './connect.ts';
import { ConnectionLostError, isBroken, isSessionLost } from './errors.ts';
import { Exchange } from './exchange.ts';
import { failureReason } from './failure-reason.ts';
import type { McpEndpoint } from './registry.ts';
import { hasCredentials } from './registry-file.ts';
import { isTooLargeError } from './message-bounds.ts';
import type { ServerTransport } from './transport.ts';
import { traceHeaders } from '../telemetry/trace-propagation.ts';
import { signInRequired } from './sign-in-required.ts';
import { ToolList, type ToolListOptions } from './tool-list.ts';

export interface CallOptions {
  /** Identical for every attempt at a call, so that the tool can recognize a repetition. */
  operationId: string;
  signal: AbortSignal;
  timeoutMs: number;
  /** Called for each progress notification; progress does not extend the time-out. */
  onProgress?: () => void;
}

export interface ConnectionOptions extends ToolListOptions, TransportOptions {
  /** For a program to start and complete the handshake; other servers have `answerTimeoutMs`. */
  startTimeoutMs: number;
  /** A connection that is idle for this long is closed. */
  idleMs: number;
}

const OPERATION_ID = 'io.everturn/operation-id';
/** Node fires a timer with a longer delay at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;
const CLOSE_TIMEOUT_MS = 1_000;

const INVALID_PARAMS = -32602;
/** The server requires arguments of this tool as headers too, as its tool list says (MCP, SEP-2243). */
const HEADER_MISMATCH = -32020;

/** An initialized connection to an MCP server. */
export class McpConnection {
  readonly #client: Client;
  readonly #transport: ServerTransport;
  readonly #tools: ToolList;
  readonly #idle: NodeJS.Timeout;
  #inUse = 0;
  #isRetired = false;
  #isClosed = false;
  readonly #closed = Promise.withResolvers<void>();

  private constructor({ client, transport }: OpenedClient, options: ConnectionOptions) {
    this.#client = client;
    this.#transport = transport;
    this.#tools = new ToolList(client, options);
    this.#idle = setTimeout(() => this.#closeIfUnused(), options.idleMs).unref();
    // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's clients are no event targets
    client.onclose = () => void this.close();
  }

  /** @throws the reason of the signal, an error of the SDK or the network, or an Error if the handshake took too long */
  static async open(endpoint: McpEndpoint, options: ConnectionOptions, signal: AbortSignal): Promise<McpConnection> {
    if ('url' in endpoint && hasCredentials(endpoint.url)) {
      throw new Error('URLs with a user name or password cannot be used');
    }
    const timeoutMs = 'command' in endpoint ? options.startTimeoutMs : options.answerTimeoutMs;
    // The SDK limits each request of the handshake, but neither the handshake as a whole nor its notification.
    const limit = new AbortController();
    const timer = setTimeout(() => {
      // The SDK's own error for an aborted handshake does not name the cause.
      limit.abort(new Error(`no MCP handshake within ${timeoutMs / 1000} s`));
    }, timeoutMs);
    const stop = AbortSignal.any([limit.signal, signal]);
    try {
      return new McpConnection(await openAny(connectStrategies(endpoint, options), options, timeoutMs, stop), options);
    } finally {
      clearTimeout(timer);
    }
  }

  get transport(): ServerTransport['kind'] {
    return this.#transport.kind;
  }

  /** Null for servers without sessions. */
  get sessionId(): string | null {
    return this.#transport.sessionId ?? null;
  }

  /** Whether the server keeps state for this connection that a later call can observe. */
  get keepsState(): boolean {
    return this.#transport.kind !== 'streamable-http' || this.#transport.sessionId !== undefined;
  }

  get takesCalls(): boolean {
    return !this.#isClosed && !this.#isRetired;
  }

  get isInUse(): boolean {
    return this.#inUse > 0;
  }

  /** @throws ConnectionLostError, or an error of the SDK or the network */
  async tools(signal: AbortSignal): Promise<Tool[]> {
    try {
      return await this.#using(() => this.#tools.all(signal));
    } catch (error) {
      const isLost = isSessionLost(error, this.sessionId) || isBroken(error) || this.#transport.failure;
      throw isLost ? new ConnectionLostError(this.#cause(error)) : error;
    }
  }

  /**
   * @throws ConnectionLostError if the tool was not called: the server lost the session, or its program or stream ended;
   *   SignInRequiredError if the server rejected the call for its token
   */
  call(name: string, args: Record<string, unknown>, options: CallOptions): Promise<CallOutcome> {
    return this.#using(() => this.#call(name, args, options));
  }

  /** Closes the connection as soon as it is unused. */
  retire(): void {
    this.#isRetired = true;
    if (this.#inUse === 0) void this.close();
  }

  /** Settles when the connection is completely closed. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  async close(): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true;
      void this.#close().then(this.#closed.resolve);
    }
    await this.closed;
  }

  async #close(): Promise<void> {
    clearTimeout(this.#idle);
    const deadline = setTimeout(() => void this.#client.close(), CLOSE_TIMEOUT_MS);
    await this.#transport.terminateSession?.().catch(() => {});
    clearTimeout(deadline);
    await this.#client.close();
    // The client does not close a transport that has closed by itself, although its processes may still run.
    await this.#transport.close();
  }

  async #call(
    name: string,
    args: Record<string, unknown>,
    options: CallOptions,
    isLastTry = false,
  ): Promise<CallOutcome> {
    const exchange = new Exchange();
    try {
      return toOutcome(await exchange.run(() => this.#send(name, args, options)));
    } catch (thrown) {
      exchange.end();
      const error = this.#cause(thrown);
      if (isTooLarge(error)) return this.#tooLarge(error);
      if (signInRequired(error)) throw error;
      if (isSessionLost(error, this.sessionId) || (this.#transport.failure && !exchange.sent)) {
        throw new ConnectionLostError(error);
      }
      const code = error instanceof ProtocolError ? error.code : undefined;
      if (code === INVALID_PARAMS || code === HEADER_MISMATCH) this.#tools.invalidate();
      const isRetryable = code === HEADER_MISMATCH && !isLastTry;
      if (isRetryable && (await this.#requiresNewHeaders(name, options))) return this.#call(name, args, options, true);
      return classifyFailure(error, exchange.sent);
    }
  }

  /** An HTTP response belongs to this call; a message on a shared stream may belong to another call. */
  #tooLarge(error: Error): CallOutcome {
    const reason = failureReason(error);
    if (this.transport !== 'streamable-http') return { status: 'unknown', message: reason, isFinal: true };
    const text = `The tool was executed, but its result was not read: ${reason}. Request less data per call.`;
    return { status: 'result', isError: true, content: [{ type: 'text', text }] };
  }

  /** Whether a call was rejected for headers that were unknown, rather than by a tool that uses the same code. */
  async #requiresNewHeaders(name: string, { signal }: CallOptions): Promise<boolean> {
    if (this.#client.getProtocolEra() !== 'modern') return false;
    const known = this.#tools.find(name)?.inputSchema;
    await this.#tools.all(signal).catch(() => {});
    const listed = this.#tools.find(name)?.inputSchema;
    const requiresHeaders = listed !== undefined && JSON.stringify(listed).includes('"x-mcp-header"');
    return requiresHeaders && !isDeepStrictEqual(known, listed);
  }

  #send(name: string, args: Record<string, unknown>, options: CallOptions): Promise<CallToolResult> {
    const { operationId, signal, timeoutMs, onProgress } = options;
    // Given a definition, the SDK does not repeat a call by itself. Without an output schema in it, the SDK does not turn
    // a result that does not fit the schema into an error that looks like the server's.
    const { inputSchema } = this.#tools.find(name) ?? { inputSchema: { type: 'object' as const } };
    // The trace context is sent twice, as OpenTelemetry specifies: in `_meta` for the call, on every transport, and in
    // the headers for the HTTP request.
    const trace = traceHeaders();
    return this.#client.callTool(
      { name, arguments: args, _meta: { ...trace, [OPERATION_ID]: operationId } },
      {
        signal,
        timeout: Math.min(timeoutMs, MAX_TIMER_MS),
        headers: { ...trace, 'Idempotency-Key': encodeURI(operationId.toWellFormed()) },
        toolDefinition: { name, inputSchema },
        ...(onProgress && { onprogress: onProgress }),
      },
    );
  }

  /** The transport's failure if it has one: the SDK only says that the connection was closed. */
  #cause(error: unknown): unknown {
    const isClosed = error instanceof SdkError && error.code === SdkErrorCode.ConnectionClosed;
    return isClosed ? (this.#transport.failure ?? error) : error;
  }

  async #using<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new ConnectionLostError(new Error('the connection was closed'));
    this.#inUse += 1;
    try {
      return await work();
    } finally {
      this.#inUse -= 1;
      if (!this.#isClosed) this.#idle.refresh();
      if (this.#isRetired && this.#inUse === 0) void this.close();
    }
  }

  #closeIfUnused(): void {
    if (this.#inUse > 0) this.#idle.refresh();
    else void this.close();
  }
}

function isTooLarge(error: unknown): error is Error {
  if (error instanceof ProtocolError) return isTooLargeError(error);
  return error instanceof AnswerTooLargeError || (error instanceof Error && isTooLarge(error.cause));
}

function toOutcome({ isError, content, structuredContent }: CallToolResult): CallOutcome {
  return {
    status: 'result',
    isError: isError === true,
    content,
    ...(structuredContent !== undefined && { structuredContent }),
  };
}
