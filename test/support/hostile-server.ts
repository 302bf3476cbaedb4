import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { createGzip } from 'node:zlib';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';

/** Bytes of a response: `head`, `unit` repeated up to `bytes`, `tail`. */
export interface Hostile {
  head?: string;
  unit: string;
  bytes: number;
  tail?: string;
  /** Sends one unit at a time, with a pause before each. */
  pauseMs?: number;
  /** Redirects there instead. */
  location?: string;
}

/** The responses of a hostile server. `$id` in a text is the id of the request, `$origin` the server's own. */
export interface HostileAnswers {
  /** Responses to requests of these MCP methods, or to all others (`*`). The rest gets valid responses. */
  methods?: Record<string, Hostile>;
  /** Responses to requests of these paths, whatever they ask. */
  paths?: Record<string, Hostile>;
  gzip?: boolean;
  contentType?: string;
  /** The last one is HTTP with SSE: a GET opens the stream, and POST is rejected. */
  protocol?: '2026-07-28' | '2025-11-25' | '2024-11-05';
}

/** The port of the server, the method of a request that it has received, or its end. */
type Report = { port: number } | { method: string } | { ended: true };

/** Threads without a server. The start of a thread takes longer than most tests. */
const idle: Worker[] = [];

/** A server in its own thread, so that its processor time is not measured as ours. */
export async function startHostileServer(
  answers: HostileAnswers,
): Promise<{ url: string; stop: () => Promise<void>; received: string[] }> {
  const thread = idle.pop() ?? new Worker(fileURLToPath(import.meta.url));
  const received: string[] = [];
  const listening = Promise.withResolvers<number>();
  const ended = Promise.withResolvers<void>();
  const hear = (report: Report): void => {
    if ('port' in report) listening.resolve(report.port);
    else if ('method' in report) received.push(report.method);
    else ended.resolve();
  };
  const fail = (error: unknown): void => {
    listening.reject(error);
    ended.reject(error);
  };
  thread.on('error', fail).on('message', hear);
  thread.ref();
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a page
  thread.postMessage(answers);
  const port = await listening.promise;
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    stop: async () => {
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a page
      thread.postMessage('end');
      await ended.promise;
      thread.off('error', fail).off('message', hear);
      thread.unref();
      idle.push(thread);
    },
    received,
  };
}

async function send(
  response: ServerResponse,
  { head = '', unit, bytes, tail = '', pauseMs, location }: Hostile,
  { gzip, contentType = 'application/json' }: HostileAnswers,
  id?: unknown,
): Promise<void> {
  const { host } = response.req.headers;
  const filled = (part: string): string =>
    part.replaceAll('$id', JSON.stringify(id ?? null)).replaceAll('$origin', `http://${host}`);
  if (location) {
    response.writeHead(307, { location: filled(location) }).end();
    return;
  }
  response.writeHead(200, { 'content-type': contentType, ...(gzip && { 'content-encoding': 'gzip' }) });
  const zip = gzip ? createGzip({ level: 1 }) : undefined;
  zip?.pipe(response);
  const out = zip ?? response;
  const gone = once(response, 'close');
  const write = async (part: string): Promise<void> => {
    if (!out.write(part)) await Promise.race([once(out, 'drain'), gone]);
  };
  await write(filled(head));
  if (pauseMs !== undefined) {
    for (let left = bytes; left > 0 && !response.destroyed; left -= unit.length) {
      await sleep(pauseMs);
      await write(unit);
    }
  }
  const block = unit.repeat(Math.max(1, Math.ceil(65_536 / unit.length)));
  let left = pauseMs === undefined ? bytes : 0;
  for (; left >= block.length && !response.destroyed; left -= block.length) await write(block);
  if (response.destroyed) return;
  await write(unit.repeat(Math.max(0, Math.floor(left / unit.length))));
  out.end(filled(tail));
}

const GOOD: Record<string, object> = {
  'server/discover': {
    resultType: 'complete',
    supportedVersions: ['2026-07-28'],
    capabilities: { tools: {} },
    serverInfo: { name: 'x', version: '1' },
    ttlMs: 0,
    cacheScope: 'private',
  },
  initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } },
  'tools/list': { resultType: 'complete', tools: [], ttlMs: 0, cacheScope: 'private' },
  'tools/call': { resultType: 'complete', content: [] },
};

function report(message: Report): void {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a port to a thread, not to a page
  parentPort?.postMessage(message);
}

function serve(answers: HostileAnswers): Server {
  const { methods = {}, paths = {}, protocol = '2026-07-28' } = answers;
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const ofPath = paths[request.url ?? ''];
    if (ofPath) {
      await send(response, ofPath, answers);
      return;
    }
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- sent by the client under test; a thread with zod starts slowly
    const { method = '', id } = JSON.parse((await text(request)) || '{}') as { method?: string; id?: unknown };
    report({ method });
    const hostile = methods[method] ?? methods['*'];
    if (hostile) {
      await send(response, hostile, answers, id);
      return;
    }
    if (protocol === '2024-11-05') {
      response.writeHead(405).end();
      return;
    }
    if (id === undefined) {
      response.writeHead(request.method === 'GET' ? 405 : 202).end();
      return;
    }
    const result = method === 'server/discover' && protocol === '2025-11-25' ? undefined : GOOD[method];
    const said = result ? { result } : { error: { code: -32601, message: 'unknown method' } };
    response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify({ jsonrpc: '2.0', id, ...said }));
  };
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  return server.listen(0, '127.0.0.1', () => report({ port: (server.address() as AddressInfo).port }));
}

if (!isMainThread && parentPort) {
  let server: Server | undefined;
  parentPort.on('message', (message: HostileAnswers | 'end') => {
    if (message !== 'end') {
      server = serve(message);
      return;
    }
    server?.close(() => report({ ended: true }));
    server?.closeAllConnections();
  });
}
