import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import {
  type Client,
  isInputRequiredResult,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  type CallToolResult,
  type InputRequiredResult,
  type ReadResourceResult,
  UrlElicitationRequiredError,
  type Tool,
} from '@modelcontextprotocol/client';
import { ResponseTooLargeError } from '../lib/response-bounds.ts';
import { causesOf } from '../lib/errors.ts';
import type { Elicitation, ElicitationAnswer } from '../core/records/pending.ts';
import { classifyFailure, type CallResponse } from './call-outcome.ts';
import { readInputRequest, readQuestion, readRequiredPages } from './elicitation.ts';
import { openAny, type OpenedClient, type TransportOptions } from './connect.ts';
import { ConnectionLostError, isBroken, isSessionLost, standsFor } from './errors.ts';
import { Exchange } from './exchange.ts';
import { noteRead } from './instrument-call.ts';
import { inTexts, withHidden, type Hide } from './hidden-credentials.ts';
import type { McpEndpoint } from './registry.ts';
import { hasCredentials } from './registry-file.ts';
import { readResultOf } from './message-bounds.ts';
import { READ_RESOURCE, resourceOf } from './read-resource.ts';
import type { ServerTransport } from './transport.ts';
import { MAX_TIMER_MS } from '../lib/timeout.ts';
import { traceHeaders } from '../telemetry/trace-propagation.ts';
import { signInRequired } from './sign-in-required.ts';
import { ToolList, type ToolListOptions } from './tool-list.ts';

export interface CallOptions {
  /** Identical for every attempt at a call, so that the tool can recognize a repetition. */
  operationId: string;
  signal: AbortSignal;
  /** How long the server may send neither a response nor progress. */
  timeoutMs: number;
  /** How long the call may take if the server reports progress. Default: `timeoutMs`. */
  totalTimeoutMs?: number;
  /** Called for each progress notification. */
  onProgress?: () => void;
  /** Called for each question to the user on the open connection; the time-outs do not count the wait. */
  onQuestion?: (question: Elicitation) => Promise<ElicitationAnswer>;
  /** The parts of the context of a run that the server is to have. */
  context?: Record<string, unknown> | undefined;
  /**
   * The ids of the connections on whose state the call relies: it is not sent on another one, if the server keeps state
   * for that.
   */
  reliesOn?: ReadonlySet<string> | undefined;
  /** The answers that the server has asked for in its last response, and its state. */
  input?: { answers: Record<string, ElicitationAnswer>; requestState?: string };
}

export interface ConnectionOptions extends ToolListOptions, TransportOptions {
  /** A connection that is idle for this long is closed, unless a call of its sessions waits for a person. */
  idleMs: number;
  /** Whether a call of a session that uses the connection waits for a person. Never rejects. */
  isAwaited: (connection: McpConnection) => Promise<boolean>;
}

const OPERATION_ID = 'io.everturn/operation-id';
const RUN_CONTEXT = 'io.everturn/context';
const CLOSE_TIMEOUT_MS = 1_000;

const INVALID_PARAMS = -32602;
/** The server requires arguments of this tool as headers too, according to its tool list (MCP, SEP-2243). */
const HEADER_MISMATCH = -32020;

/** A server may send any number of questions. */
const MAX_UNASSIGNED = 500;

interface OpenRequest {
  timer: CallTimer;
  /** Its questions without an answer. */
  open: number;
  onQuestion: CallOptions['onQuestion'];
}

/** The time-outs of a call, which abort its signal with the SDK's own error for a time-out. */
class CallTimer {
  readonly #controller = new AbortController();
  readonly #silenceMs: number;
  readonly #totalMs: number;
  /** How long the call has run before the current start of the timer, without waits for the user. */
  #ranMs = 0;
  #startedAt = 0;
  /** When the last progress was reported, in the time that the call has run. */
  #progressAt = 0;
  #pauses = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor({ timeoutMs, totalTimeoutMs = timeoutMs }: Pick<CallOptions, 'timeoutMs' | 'totalTimeoutMs'>) {
    this.#totalMs = Math.min(totalTimeoutMs, MAX_TIMER_MS);
    this.#silenceMs = Math.min(timeoutMs, this.#totalMs);
    this.#start();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether progress gives the call more time. */
  get extends(): boolean {
    return this.#silenceMs < this.#totalMs;
  }

  progressed(): void {
    this.#progressAt = this.#elapsedMs;
  }

  pause(): void {
    if (this.#pauses++ > 0) return;
    clearTimeout(this.#timer);
    this.#ranMs += performance.now() - this.#startedAt;
  }

  resume(): void {
    if (--this.#pauses === 0) this.#start();
  }

  stop(): void {
    this.#pauses = Infinity;
    clearTimeout(this.#timer);
  }

  get #elapsedMs(): number {
    return this.#ranMs + (this.#pauses > 0 ? 0 : performance.now() - this.#startedAt);
  }

  #start(): void {
    this.#startedAt = performance.now();
    this.#arm();
  }

  #arm(): void {
    const endsAt = Math.min(this.#totalMs, this.#progressAt + this.#silenceMs);
    // Progress does not restart the timer: a server may send any amount of it.
    const onEnd = (): void => {
      if (Math.min(this.#totalMs, this.#progressAt + this.#silenceMs) > endsAt) this.#arm();
      else this.#expire(endsAt < this.#totalMs ? this.#silenceMs : this.#totalMs);
    };
    this.#timer = setTimeout(onEnd, Math.max(0, Math.ceil(endsAt - this.#elapsedMs)));
  }

  #expire(timeout: number): void {
    const data = { timeout, ...(this.#progressAt > 0 && timeout < this.#totalMs && { hasProgressed: true }) };
    this.#controller.abort(new SdkError(SdkErrorCode.RequestTimeout, 'Request timed out', data));
  }
}

/** A call whose request is sent. */
type Sending = CallOptions & { timer: CallTimer };

/** An initialized connection to an MCP server. */
export class McpConnection {
  /** Unique among the connections of all processes, at all times. */
  readonly id = randomUUID();
  readonly #client: Client;
  readonly #transport: ServerTransport;
  readonly #tools: ToolList;
  readonly #idle: NodeJS.Timeout;
  readonly #isAwaited: ConnectionOptions['isAwaited'];
  #inUse = 0;
  /** How often it was used. */
  #uses = 0;
  #isRetired = false;
  #isClosed = false;
  readonly #closed = Promise.withResolvers<void>();
  /** The calls in progress. */
  readonly #calls = new Map<Exchange, OpenRequest>();
  /** Questions that do not name the call that has asked them. */
  #unassigned: { question: Elicitation; resolve: (answer: Promise<ElicitationAnswer>) => void }[] = [];
  readonly #isShared: boolean;
  readonly #credentials: ConnectionOptions['credentials'];

  private constructor({ client, transport, listing }: OpenedClient, endpoint: McpEndpoint, options: ConnectionOptions) {
    this.#isShared = endpoint.isolation === 'shared';
    this.#credentials = options.credentials;
    this.#client = client;
    this.#transport = transport;
    this.#tools = new ToolList(client, listing, options);
    this.#isAwaited = options.isAwaited;
    this.#idle = setTimeout(() => void this.#closeIfUnused(), options.idleMs).unref();
    // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's clients are no event targets
    client.onclose = () => void this.close();
    client.setRequestHandler('elicitation/create', ({ params }) => this.#ask(params));
  }

  /** @throws see `openAny` */
  static async open(endpoint: McpEndpoint, options: ConnectionOptions, signal: AbortSignal): Promise<McpConnection> {
    if ('url' in endpoint && hasCredentials(endpoint.url)) {
      throw new Error('URLs with a user name or password cannot be used');
    }
    return new McpConnection(await openAny(endpoint, options, signal), endpoint, options);
  }

  get transport(): ServerTransport['kind'] {
    return this.#transport.kind;
  }

  /** The version of the protocol that both sides speak. */
  get protocol(): string {
    return this.#client.getNegotiatedProtocolVersion() ?? '';
  }

  /** Null for servers without sessions. */
  get sessionId(): string | null {
    return this.#transport.sessionId ?? null;
  }

  /** Whether the server keeps state for this connection that a later call can observe. */
  get keepsState(): boolean {
    return this.#transport.kind !== 'streamable-http' || this.#transport.sessionId !== undefined;
  }

  /** What was left out or repaired of the last list of tools, for the operator. */
  get toolWarnings(): readonly string[] {
    return this.#tools.warnings;
  }

  /** The server's instructions for the use of its tools; empty if it has none. */
  get instructions(): string {
    return inTexts(this.#client.getInstructions() ?? '', this.#hide);
  }

  get takesCalls(): boolean {
    return !this.#isClosed && !this.#isRetired;
  }

  /** The process of a program. */
  get pid(): number | undefined {
    return this.#transport.pid ?? undefined;
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
  call(name: string, args: Record<string, unknown>, options: CallOptions): Promise<CallResponse> {
    const { onQuestion } = options;
    const asking: Pick<CallOptions, 'onQuestion'> = onQuestion
      ? { onQuestion: (question) => onQuestion(inTexts(question, this.#hide)) }
      : {};
    return this.#using(async () => {
      const response = await this.#call(name, args, { ...options, ...asking });
      return this.#hide ? withHidden(response, this.#hide) : response;
    });
  }

  /** Read when something is to be hidden: a call may be sent with a new token. */
  get #hide(): Hide | undefined {
    return this.#credentials.hide;
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
  ): Promise<CallResponse> {
    const exchange = new Exchange();
    const timer = new CallTimer(options);
    this.#calls.set(exchange, { timer, open: 0, onQuestion: options.onQuestion });
    try {
      const sending = { ...options, timer };
      if (!(await this.#isReadResource(name, options.signal))) {
        return toResponse(await exchange.run(() => this.#send(name, args, sending)));
      }
      noteRead();
      const resource = resourceOf(args);
      if ('problem' in resource) return failed(resource.problem);
      return toResponse(await exchange.run(() => this.#read(resource.uri, sending)));
    } catch (thrown) {
      exchange.end();
      const error = this.#cause(thrown);
      const bound = exceededBound(error);
      if (bound) return this.#tooLarge(bound);
      if (isNoResult(error)) return failed(NO_RESULT);
      if (signInRequired(error)) throw error;
      if (isSessionLost(error, this.sessionId) || (this.#transport.failure && !exchange.sent)) {
        throw new ConnectionLostError(error);
      }
      if (error instanceof UrlElicitationRequiredError) {
        const request = readRequiredPages(error.elicitations);
        if (request) return { status: 'input_required', request };
      }
      const code = error instanceof ProtocolError ? error.code : undefined;
      if (code === INVALID_PARAMS || code === HEADER_MISMATCH) this.#tools.invalidate();
      const isRetryable = code === HEADER_MISMATCH && !isLastTry;
      if (isRetryable && (await this.#requiresNewHeaders(name, options))) return this.#call(name, args, options, true);
      return classifyFailure(error, exchange.sent, this.#hide);
    } finally {
      timer.stop();
      this.#calls.delete(exchange);
      this.#assign();
    }
  }

  /** Asks the user on behalf of the call whose response has the question: the asynchronous context names it. */
  #ask(params: unknown): Promise<ElicitationAnswer> {
    const question = readQuestion(params);
    if (!question) return Promise.resolve({ action: 'cancel' });
    const call = Exchange.current && this.#calls.get(Exchange.current);
    if (call) return askFor(call, question);
    // On a stream of the connection, the question of a connection that users share may be any user's.
    const mayAsk = this.keepsState && !this.#isShared && this.#unassigned.length < MAX_UNASSIGNED;
    if (!mayAsk) return Promise.resolve({ action: 'cancel' });
    return new Promise((resolve) => {
      this.#unassigned.push({ question, resolve });
      this.#assign();
    });
  }

  /**
   * Assigns questions without a call as soon as there is no doubt: when there are as many as calls that have asked
   * nothing. If a question were assigned to another call, that call would return, and the right one would never do so.
   */
  #assign(): void {
    const calls = [...this.#calls.values()];
    const silent = calls.filter(({ open }) => open === 0);
    if (silent.length > this.#unassigned.length) return;
    const [first] = calls;
    const unassigned = this.#unassigned.splice(0);
    for (const [i, { question, resolve }] of unassigned.entries()) {
      const call = silent[i] ?? first;
      resolve(call ? askFor(call, question) : Promise.resolve({ action: 'cancel' }));
    }
  }

  /** A message or an HTTP response belongs to this call; the end of a shared stream may be due to another call. */
  #tooLarge({ reason, isOfCall }: ExceededBound): CallResponse {
    if (!isOfCall && this.transport !== 'streamable-http') {
      return { status: 'unknown', message: `failed: ${reason}`, isFinal: true };
    }
    return failed(`The tool was executed, but its result was not read: ${reason}. Request less data per call.`);
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

  #send(name: string, args: Record<string, unknown>, options: Sending): Promise<CallToolResult> {
    // With a definition, the SDK does not repeat a call by itself. Without an output schema in it, the SDK does not
    // turn a result that does not fit the schema into an error that looks like the server's.
    const { inputSchema } = this.#tools.find(name) ?? { inputSchema: { type: 'object' as const } };
    const { params, request } = this.#requestOf(options);
    return this.#client.callTool(
      { name, arguments: args, ...params },
      { ...request, toolDefinition: { name, inputSchema } },
    );
  }

  #read(uri: string, options: Sending): Promise<ReadResourceResult> {
    const { params, request } = this.#requestOf(options);
    return this.#client.readResource({ uri, ...params }, { ...request, cacheMode: 'bypass' });
  }

  /** A tool of that name may be the server's own, which only its list shows. */
  async #isReadResource(name: string, signal: AbortSignal): Promise<boolean> {
    if (name !== READ_RESOURCE.name) return false;
    return (await this.#tools.all(signal)).includes(READ_RESOURCE);
  }

  /** The parts that the requests of all calls have. */
  #requestOf({ operationId, signal, timer, onProgress, context, input }: Sending) {
    // The trace context is sent twice, as OpenTelemetry specifies: in `_meta` for the call, on every transport, and in
    // the headers for the HTTP request.
    const trace = traceHeaders();
    const params = {
      _meta: { ...trace, [OPERATION_ID]: operationId, ...(context && { [RUN_CONTEXT]: context }) },
      ...(input && Object.keys(input.answers).length > 0 && { inputResponses: input.answers }),
      ...(input?.requestState !== undefined && { requestState: input.requestState }),
    };
    const request = {
      signal: AbortSignal.any([signal, timer.signal]),
      timeout: MAX_TIMER_MS,
      allowInputRequired: true as const,
      headers: { ...trace, 'Idempotency-Key': encodeURI(operationId.toWellFormed()) },
      // Servers are asked for progress only where it changes something.
      ...((timer.extends || onProgress) && {
        onprogress: () => {
          timer.progressed();
          onProgress?.();
        },
      }),
    };
    return { params, request };
  }

  /** The transport's failure if it has one: the SDK only reports that the connection was closed. */
  #cause(error: unknown): unknown {
    const isClosed = error instanceof SdkError && error.code === SdkErrorCode.ConnectionClosed;
    return isClosed ? (this.#transport.failure ?? error) : error;
  }

  async #using<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new ConnectionLostError(new Error('the connection was closed'));
    this.#inUse += 1;
    this.#uses += 1;
    try {
      return await work();
    } finally {
      this.#inUse -= 1;
      if (!this.#isClosed) this.#idle.refresh();
      if (this.#isRetired && this.#inUse === 0) void this.close();
    }
  }

  async #closeIfUnused(): Promise<void> {
    const uses = this.#uses;
    const isNeeded = this.#inUse > 0 || (await this.#isAwaited(this));
    if (this.#isClosed) return;
    if (isNeeded || uses !== this.#uses) this.#idle.refresh();
    else await this.close();
  }
}

async function askFor(call: OpenRequest, question: Elicitation): Promise<ElicitationAnswer> {
  if (!call.onQuestion) return { action: 'cancel' };
  call.open += 1;
  call.timer.pause();
  try {
    return await call.onQuestion(question);
  } finally {
    call.open -= 1;
    call.timer.resume();
  }
}

/** Which bound a response exceeds; `isOfCall`: it is known to be that of the call. */
interface ExceededBound {
  reason: string;
  isOfCall: boolean;
}

function exceededBound(error: unknown): ExceededBound | undefined {
  for (const cause of causesOf(error)) {
    if (cause instanceof ProtocolError && standsFor(cause, 'tooLarge'))
      return { reason: cause.message, isOfCall: true };
    if (cause instanceof ResponseTooLargeError) return { reason: cause.message, isOfCall: false };
  }
  return undefined;
}

const NO_RESULT =
  'The server has answered this call, but not with a result that can be read. The tool may have taken effect.';

/** Whether the server's response to a call is no result. */
function isNoResult(error: unknown): boolean {
  if (error instanceof ProtocolError) return standsFor(error, 'unreadable');
  if (!(error instanceof SdkError)) return false;
  return error.code === SdkErrorCode.InvalidResult || error.code === SdkErrorCode.UnsupportedResultType;
}

/** A result with the reason why the tool's own result is missing. */
function failed(text: string): CallResponse {
  return { status: 'result', isError: true, content: [{ type: 'text', text }] };
}

function toResponse(result: CallToolResult | ReadResourceResult | InputRequiredResult): CallResponse {
  if (isInputRequiredResult(result)) {
    const request = readInputRequest(result);
    if (request) return { status: 'input_required', request };
    return { status: 'rejected', message: 'asked for input that this client does not offer, or that is too large' };
  }
  return { status: 'result', isError: result.isError === true, ...readResultOf(result) };
}
