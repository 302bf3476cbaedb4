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
import { ToolList, type ToolListOptions } from './tool-list.ts';

export interface CallOptions {
  /** The same for every attempt of a call, so that the tool can tell a repetition. */
  operationId: string;
  signal: AbortSignal;
  timeoutMs: number;
  /** Told of each progress notification; these prolong nothing. */
  onProgress?: () => void;
}

export interface ConnectionOptions extends ToolListOptions, TransportOptions {
  /** For a program to start and to agree with us on how to talk; other servers have `answerTimeoutMs`. */
  startTimeoutMs: number;
  /** A connection that nobody uses for this long closes. */
  idleMs: number;
}

const OPERATION_ID = 'io.everturn/operation-id';
/** Node fires a timer with a longer delay at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;
const CLOSE_TIMEOUT_MS = 1_000;

const INVALID_PARAMS = -32602;
/** The server wants arguments of this tool repeated as headers, as its list of tools says (MCP, SEP-2243). */
const HEADER_MISMATCH = -32020;

/** A client and an MCP server that have agreed on how to talk. */
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

  /** @throws the reason of the signal, what the SDK or the network throws, or that the handshake took too long. */
  static async open(endpoint: McpEndpoint, options: ConnectionOptions, signal: AbortSignal): Promise<McpConnection> {
    if ('url' in endpoint && hasCredentials(endpoint.url)) {
      throw new Error('URLs with a user name or password can not be used');
    }
    const timeoutMs = 'command' in endpoint ? options.startTimeoutMs : options.answerTimeoutMs;
    // The SDK limits each request of a handshake, not all of them, and its notification not at all.
    const limit = new AbortController();
    const timer = setTimeout(() => {
      // What the SDK makes of being cut off explains nothing.
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

  /** Whether the server keeps something for this connection that a caller can see the next time. */
  get keepsState(): boolean {
    return this.#transport.kind !== 'streamable-http' || this.#transport.sessionId !== undefined;
  }

  get takesCalls(): boolean {
    return !this.#isClosed && !this.#isRetired;
  }

  get isInUse(): boolean {
    return this.#inUse > 0;
  }

  /** @throws ConnectionLostError, and what the SDK or the network throws. */
  async tools(signal: AbortSignal): Promise<Tool[]> {
    try {
      return await this.#using(() => this.#tools.all(signal));
    } catch (error) {
      const isLost = isSessionLost(error, this.sessionId) || isBroken(error) || this.#transport.failure;
      throw isLost ? new ConnectionLostError(this.#cause(error)) : error;
    }
  }

  /** @throws ConnectionLostError if the tool was not called: the server has lost our session, or its program or stream has ended. */
  call(name: string, args: Record<string, unknown>, options: CallOptions): Promise<CallOutcome> {
    return this.#using(() => this.#call(name, args, options));
  }

  /** Closes as soon as nobody uses it. */
  retire(): void {
    this.#isRetired = true;
    if (this.#inUse === 0) void this.close();
  }

  /** Settles when nothing of it is left. */
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
    // The client knows nothing of a transport that has closed by itself, of which processes may be left.
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
      if (isSessionLost(error, this.sessionId) || (this.#transport.failure && !exchange.sent)) {
        throw new ConnectionLostError(error);
      }
      const code = error instanceof ProtocolError ? error.code : undefined;
      if (code === INVALID_PARAMS || code === HEADER_MISMATCH) this.#tools.outdated();
      const mayRepeat = code === HEADER_MISMATCH && !isLastTry;
      if (mayRepeat && (await this.#wantsOtherHeaders(name, options))) return this.#call(name, args, options, true);
      return classifyFailure(error, exchange.sent);
    }
  }

  /** On an HTTP response of its own the answer is to this call; of a shared stream only the server knows to which. */
  #tooLarge(error: Error): CallOutcome {
    const reason = failureReason(error);
    if (this.transport !== 'streamable-http') return { status: 'unknown', message: reason, isFinal: true };
    const text = `The tool was executed, but its result was not read: ${reason}. Ask for less at once.`;
    return { status: 'result', isError: true, content: [{ type: 'text', text }] };
  }

  /** Whether a call was refused for headers that we could not know of, and not by a tool that uses the code itself. */
  async #wantsOtherHeaders(name: string, { signal }: CallOptions): Promise<boolean> {
    if (this.#client.getProtocolEra() !== 'modern') return false;
    const known = this.#tools.find(name)?.inputSchema;
    await this.#tools.all(signal).catch(() => {});
    const listed = this.#tools.find(name)?.inputSchema;
    const wantsHeaders = listed !== undefined && JSON.stringify(listed).includes('"x-mcp-header"');
    return wantsHeaders && !isDeepStrictEqual(known, listed);
  }

  #send(name: string, args: Record<string, unknown>, options: CallOptions): Promise<CallToolResult> {
    const { operationId, signal, timeoutMs, onProgress } = options;
    // With a definition at hand the SDK neither repeats a call by itself nor, without an output schema, turns a result
    // that does not fit that schema into an error that looks like the server's.
    const { inputSchema } = this.#tools.find(name) ?? { inputSchema: { type: 'object' as const } };
    // Both, as OpenTelemetry wants it: the one for the call, on every transport; the other for the HTTP request.
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

  /** The SDK only says that the connection was closed. */
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
