import { setTimeout as sleep } from 'node:timers/promises';
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import {
  createMcpHandler,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  WebStandardStreamableHTTPServerTransport,
  type CallToolResult,
  type ElicitRequestFormParams,
  type ElicitRequestURLParams,
  type ElicitResult,
  type EventStore,
  type InputRequiredResult,
  type JSONRPCMessage,
  type McpHttpHandler,
  type ServerContext,
  type Tool,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import type { McpEndpoint } from '../../src/mcp/registry.ts';

/** A result that comes so late that its call has an activity of its own: see `EARLY_MS` of `src/features/speculation`. */
export function late(text: string): Promise<string> {
  return sleep(50, text);
}

export interface TestTool extends Partial<Tool> {
  name: string;
  /** A string is a result of one text block; a thrown error is a JSON-RPC error. */
  handler?: (args: Record<string, unknown>, call: RunningCall) => Answer | Promise<Answer>;
}

type Answer = CallToolResult | InputRequiredResult | string;

export interface RunningCall {
  meta: Record<string, unknown>;
  headers: Record<string, string>;
  /** Aborted when the client cancels the call. */
  signal: AbortSignal;
  progress: (progress: number) => Promise<void>;
  /** Ends the stream of this call without a result; only with `resumable`, whose clients reconnect for it. */
  hangUp: () => void;
  /** Cuts the connection on which the call arrived. */
  cut: () => void;
  /** Asks the user as `2025-11-25` servers do: on the stream of the session, or on that of this call. */
  elicit: (params: ElicitRequestFormParams | ElicitRequestURLParams, on?: 'session' | 'call') => Promise<ElicitResult>;
  /** The answers to the `input_required` result of a `2026-07-28` server, and its state. */
  inputResponses: Record<string, unknown> | undefined;
  requestState: string | undefined;
}

/** A call that reached its tool. */
export interface SeenCall {
  tool: string;
  arguments: Record<string, unknown>;
  meta: Record<string, unknown>;
  headers: Record<string, string>;
}

/**
 * Replaces the response to the requests of a JSON-RPC method:
 * - `stall`: no response at all.
 * - `drop`: the connection is cut before the request is handled.
 * - `swallow`: the request is handled, and the connection is cut where its result would have been sent.
 * - an HTTP response, or the result of a JSON-RPC response, without handling the request;
 * - `until`: the request is handled, and its response waits for that promise.
 */
export type Fault = 'stall' | 'drop' | 'swallow' | HttpAnswer | { result: unknown } | { until: Promise<unknown> };

export interface HttpAnswer {
  status: number;
  body?: string;
  contentType?: string;
  headers?: Record<string, string>;
}

export interface TestMcpServerOptions {
  tools: TestTool[];
  /** `2025-11-25` servers keep sessions and respond by event stream; the others have no sessions. */
  protocol?: '2026-07-28' | '2025-11-25';
  /** How a `2026-07-28` server responds; default `json`. */
  answers?: 'json' | 'sse';
  /** The HTTP status for sessions that a `2025-11-25` server does not have; default 404. */
  unknownSession?: { status: number; body: string };
  /** Whether the event streams of a `2025-11-25` server can be resumed. */
  resumable?: boolean;
  /** Answers requests in place of the server, if it returns an answer. */
  guard?: (request: IncomingMessage, body: string) => Promise<HttpAnswer | undefined>;
  /** How long each takes by its URI, whose text it is; with any, the server declares the capability. */
  resources?: Record<string, Promise<unknown>>;
  /** Tools per page of `tools/list`. */
  pageSize?: number;
  instructions?: string;
}

/** A real MCP server over streamable HTTP on the loopback interface. */
export class TestMcpServer {
  readonly calls: SeenCall[] = [];
  /** The JSON-RPC methods of all received messages, in order; `GET` and `DELETE` for such requests. */
  readonly received: string[] = [];
  /** By JSON-RPC method. */
  readonly faults = new Map<string, Fault>();
  /** Requests in progress, event streams included. */
  openRequests = 0;

  #options: TestMcpServerOptions;
  readonly #response = new AsyncLocalStorage<ServerResponse>();
  #tools: TestTool[];
  #port = 0;
  #http: HttpServer | undefined;
  #modern: McpHttpHandler | undefined;
  readonly #sessions = new Map<string, { server: Server; transport: WebStandardStreamableHTTPServerTransport }>();

  private constructor(options: TestMcpServerOptions) {
    this.#options = options;
    this.#tools = options.tools;
  }

  static async start(options: TestMcpServerOptions): Promise<TestMcpServer> {
    const server = new TestMcpServer(options);
    await server.restart();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/mcp`;
  }

  /** The endpoint, as if an operator had registered it. */
  get endpoint(): McpEndpoint {
    return {
      id: 'test',
      name: 'test',
      url: this.url,
      headers: {},
      trusted: true,
      idempotentTools: [],
      isolation: 'session',
    };
  }

  /** Restarts it on the same port without the earlier sessions; `changes`: as after a deploy of another version. */
  async restart(changes: Partial<TestMcpServerOptions> = {}): Promise<void> {
    await this.stop();
    this.#options = { ...this.#options, ...changes };
    this.#modern = createMcpHandler(() => this.#serve(), {
      legacy: 'reject',
      responseMode: this.#options.answers === 'sse' ? 'sse' : 'auto',
      keepAliveMs: 0,
    });
    const http = createServer((request, response) => {
      this.openRequests += 1;
      response.on('close', () => (this.openRequests -= 1));
      this.#handle(request, response).catch(() => response.destroy());
    });
    await new Promise<void>((resolve, reject) => {
      http.once('error', reject);
      http.listen(this.#port, '127.0.0.1', resolve);
    });
    const address = http.address();
    if (typeof address === 'object' && address) this.#port = address.port;
    this.#http = http;
  }

  /** Cuts all connections and refuses new ones. */
  async stop(): Promise<void> {
    const http = this.#http;
    this.#http = undefined;
    this.forgetSessions();
    await this.#modern?.close();
    if (!http) return;
    const closed = new Promise((resolve) => http.close(resolve));
    http.closeAllConnections();
    await closed;
  }

  /** Makes every session unknown, as after a deploy. */
  forgetSessions(): void {
    for (const { server } of this.#sessions.values()) void server.close();
    this.#sessions.clear();
  }

  /** Changes the tools and notifies the clients. */
  async setTools(tools: TestTool[]): Promise<void> {
    this.#tools = tools;
    this.#modern?.notify.toolsChanged();
    for (const { server } of this.#sessions.values()) await server.sendToolListChanged();
  }

  count(method: string): number {
    return this.received.filter((one) => one === method).length;
  }

  #serve(): Server {
    const { resources, instructions } = this.#options;
    const server = new Server(
      { name: 'test', version: '1' },
      {
        capabilities: { tools: { listChanged: true }, ...(resources && { resources: {} }) },
        ...(instructions !== undefined && { instructions }),
      },
    );
    if (resources) {
      server.setRequestHandler('resources/read', async ({ params: { uri } }) => {
        await (resources[uri] ?? Promise.reject(new ProtocolError(ProtocolErrorCode.InvalidParams, `no ${uri}`)));
        return { contents: [{ uri, text: uri }] };
      });
    }
    server.setRequestHandler('tools/list', ({ params }) => this.#list(params?.cursor));
    server.setRequestHandler('tools/call', ({ params }, context) =>
      this.#call(params.name, params.arguments ?? {}, context),
    );
    return server;
  }

  #list(cursor = '0'): { tools: Tool[]; nextCursor?: string } {
    const from = Number(cursor);
    const to = from + (this.#options.pageSize ?? this.#tools.length);
    const tools = this.#tools.slice(from, to).map((tool) => ({
      inputSchema: { type: 'object' as const },
      ...tool,
      handler: undefined,
    }));
    return { tools, ...(to < this.#tools.length && { nextCursor: String(to) }) };
  }

  async #call(
    name: string,
    args: Record<string, unknown>,
    context: ServerContext,
  ): Promise<CallToolResult | InputRequiredResult> {
    const meta = context.mcpReq._meta ?? {};
    const headers = Object.fromEntries(context.http?.req?.headers ?? []);
    const tool = this.#tools.find((one) => one.name === name);
    if (!tool) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${name}`);
    this.calls.push({ tool: name, arguments: args, meta, headers });
    const progress = async (progress: number): Promise<void> => {
      if (meta.progressToken === undefined) return;
      const params = { progressToken: meta.progressToken, progress };
      await context.mcpReq.notify({ method: 'notifications/progress', params });
    };
    const hangUp = (): void => context.http?.closeSSE?.();
    const response = this.#response.getStore();
    const cut = (): void => void response?.destroy();
    const { signal, inputResponses } = context.mcpReq;
    const answer = await tool.handler?.(args, {
      meta,
      headers,
      signal,
      progress,
      hangUp,
      cut,
      elicit: (params, on) => {
        // The SDK's own time-out is a minute.
        const options = { timeout: 2 ** 31 - 1 };
        if (on !== 'call') return context.mcpReq.elicitInput(params, options);
        return context.mcpReq.send({ method: 'elicitation/create', params }, options);
      },
      inputResponses,
      requestState: context.mcpReq.requestState<string>(),
    });
    if (typeof answer === 'object') return answer;
    return { content: [{ type: 'text', text: answer ?? 'ok' }] };
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request);
    const guarded = await this.#options.guard?.(request, body);
    if (guarded) {
      const headers = { 'content-type': guarded.contentType ?? 'text/plain', ...guarded.headers };
      response.writeHead(guarded.status, headers).end(guarded.body);
      return;
    }
    const { method, id } = body ? message.parse(JSON.parse(body)) : { method: request.method };
    this.received.push(method ?? 'response');
    const fault = this.faults.get(method ?? '');
    if (fault === 'stall') return;
    if (fault === 'drop') return void response.destroy();
    if (typeof fault === 'object' && !('until' in fault)) {
      const answer: HttpAnswer =
        'status' in fault ? fault : { status: 200, ...json({ jsonrpc: '2.0', id, result: fault.result }) };
      const headers = { 'content-type': answer.contentType ?? 'text/plain', ...answer.headers };
      response.writeHead(answer.status, headers).end(answer.body);
      return;
    }
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const forwarded = new Request(new URL(request.url ?? '/', this.url), {
      method: request.method ?? 'GET',
      headers: pairs(request.rawHeaders),
      signal: gone.signal,
      ...(body && { body }),
    });
    const answer = await this.#response.run(response, () => this.#answer(forwarded));
    if (typeof fault === 'object') await fault.until;
    if (response.destroyed) return;
    if (fault === 'swallow' && !isEventStream(answer)) return void response.destroy();
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.flushHeaders();
    for await (const chunk of answer.body ?? []) {
      if (fault === 'swallow' && Buffer.from(chunk).includes('"result"')) return void response.destroy();
      await new Promise((resolve) => response.write(chunk, resolve));
    }
    response.end();
  }

  async #answer(request: Request): Promise<Response> {
    if (this.#options.protocol !== '2025-11-25') {
      return (await this.#modern?.fetch(request)) ?? Response.error();
    }
    const sessionId = request.headers.get('mcp-session-id');
    const session = this.#sessions.get(sessionId ?? '');
    if (session) return session.transport.handleRequest(request);
    if (sessionId) {
      const { status, body } = this.#options.unknownSession ?? { status: 404, body: 'Session not found' };
      return new Response(body, { status });
    }
    const server = this.#serve();
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void this.#sessions.set(id, { server, transport }),
      keepAliveMs: 0,
      ...(this.#options.resumable && { eventStore: new MemoryEventStore(), retryInterval: 1 }),
    });
    await server.connect(transport);
    return transport.handleRequest(request);
  }
}

const message = z.object({ method: z.string().optional(), id: z.unknown().optional() });

function json(value: unknown): { contentType: string; body: string } {
  return { contentType: 'application/json', body: JSON.stringify(value) };
}

function pairs(rawHeaders: string[]): [string, string][] {
  return rawHeaders.flatMap((name, i) => (i % 2 === 0 ? [[name, rawHeaders[i + 1] ?? '']] : []));
}

function isEventStream(response: Response): boolean {
  return response.headers.get('content-type')?.startsWith('text/event-stream') ?? false;
}

class MemoryEventStore implements EventStore {
  readonly #events: { streamId: string; message: JSONRPCMessage }[] = [];

  storeEvent(streamId: string, message: JSONRPCMessage): Promise<string> {
    return Promise.resolve(String(this.#events.push({ streamId, message }) - 1));
  }

  async replayEventsAfter(
    lastEventId: string,
    { send }: { send: (eventId: string, message: JSONRPCMessage) => Promise<void> },
  ): Promise<string> {
    const streamId = this.#events[Number(lastEventId)]?.streamId ?? '';
    for (const [id, event] of this.#events.entries()) {
      const wanted = id > Number(lastEventId) && event.streamId === streamId && 'jsonrpc' in event.message;
      if (wanted) await send(String(id), event.message);
    }
    return streamId;
  }
}
