import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createMcpHandler } from '@modelcontextprotocol/server';
import type { HttpEndpoint, McpEndpoint, StdioEndpoint } from '../../src/mcp/registry.ts';
import { McpBehaviour } from './mcp-behaviour.ts';
import { newerServer, olderServer } from './mcp-sdks.ts';

/** A real server of some kind, with the tools of `McpBehaviour`. */
export interface KindOfServer {
  endpoint: McpEndpoint;
  stop: () => Promise<void>;
  /** Restarts it as after a deploy: its sessions are lost. */
  restart: () => Promise<void>;
}

export function stdioEndpoint(...args: string[]): StdioEndpoint {
  const program = fileURLToPath(new URL('./stdio-mcp-server.ts', import.meta.url));
  return {
    id: 'test',
    name: 'test',
    command: process.execPath,
    args: [program, ...args],
    env: {},
    idempotentTools: [],
    isolation: 'subject',
  };
}

/** A program that begins to start at once, as one that is being installed, and runs when the file `gate` exists. */
export function gatedEndpoint(gate: string, ...args: string[]): StdioEndpoint {
  const { command, args: given, ...rest } = stdioEndpoint(...args);
  const script = 'while [ ! -e "$0" ]; do sleep 0.02; done; exec "$@"';
  return { ...rest, command: '/bin/sh', args: ['-c', script, gate, command, ...given] };
}

export type Handler = (request: IncomingMessage, response: ServerResponse) => Promise<void> | void;

/** All kinds of servers that Everturn supports, by name. */
export const KINDS: Record<string, () => Promise<KindOfServer>> = {
  'stdio, 2026-07-28': () => Promise.resolve(overStdio('2026-07-28')),
  'stdio, 2025-11-25': () => Promise.resolve(overStdio('2025-11-25')),
  'streamable HTTP, 2026-07-28': () => overHttp(newer),
  'streamable HTTP with sessions, 2025-11-25': () => overHttp(olderWithSessions),
  'streamable HTTP without sessions, 2025-11-25': () => overHttp(olderStateless),
  'HTTP with SSE, 2024-11-05': () => overHttp(sse),
};

function overStdio(era: string): KindOfServer {
  const nothing = (): Promise<void> => Promise.resolve();
  return { endpoint: stdioEndpoint(era), stop: nothing, restart: nothing };
}

async function overHttp(create: () => Handler): Promise<KindOfServer> {
  let http: HttpServer;
  let port = 0;
  const start = async (): Promise<void> => {
    const handler = create();
    http = createServer((request, response) => void handler(request, response));
    await new Promise<void>((resolve) => http.listen(port, '127.0.0.1', resolve));
    const address = http.address();
    if (typeof address === 'object' && address) ({ port } = address);
  };
  const stop = async (): Promise<void> => {
    const closed = new Promise((resolve) => http.close(resolve));
    http.closeAllConnections();
    await closed;
  };
  await start();
  const url = `http://127.0.0.1:${port}/mcp`;
  const endpoint: HttpEndpoint = {
    id: 'test',
    name: 'test',
    url,
    headers: {},
    trusted: true,
    idempotentTools: [],
    isolation: 'session',
  };
  return { endpoint, stop, restart: () => stop().then(start) };
}

export function newer(): Handler {
  const behaviour = new McpBehaviour(() => handler.notify.toolsChanged());
  const handler = createMcpHandler(() => newerServer(behaviour), { legacy: 'reject', keepAliveMs: 0 });
  return toNodeHandler(handler) as Handler;
}

function olderWithSessions(): Handler {
  const sessions = new Map<string, StreamableHTTPServerTransport>();
  const servers: ReturnType<typeof olderServer>[] = [];
  const behaviour = new McpBehaviour(async () => {
    for (const server of servers) await server.sendToolListChanged();
  });
  return async (request, response) => {
    const id = request.headers['mcp-session-id'];
    const known = sessions.get(String(id));
    if (known) return known.handleRequest(request, response);
    if (id) return void response.writeHead(404).end();
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (sessionId) => void sessions.set(sessionId, transport),
    });
    const server = olderServer(behaviour);
    servers.push(server);
    await server.connect(transport);
    return transport.handleRequest(request, response);
  };
}

function olderStateless(): Handler {
  const behaviour = new McpBehaviour(() => {});
  return async (request, response) => {
    if (request.method !== 'POST') return void response.writeHead(405).end();
    const transport = new StreamableHTTPServerTransport({});
    const server = olderServer(behaviour);
    response.on('close', () => void server.close());
    await server.connect(transport);
    return transport.handleRequest(request, response, await json(request));
  };
}

function sse(): Handler {
  const sessions = new Map<string, SSEServerTransport>();
  const behaviour = new McpBehaviour(async () => {
    for (const server of servers) await server.sendToolListChanged();
  });
  const servers: ReturnType<typeof olderServer>[] = [];
  return async (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://x');
    const session = sessions.get(searchParams.get('sessionId') ?? '');
    if (session) return session.handlePostMessage(request, response);
    if (request.method !== 'GET' || pathname !== '/mcp') return void response.writeHead(404).end();
    const transport = new SSEServerTransport('/messages', response);
    sessions.set(transport.sessionId, transport);
    const server = olderServer(behaviour);
    servers.push(server);
    await server.connect(transport);
  };
}
