import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import type { Express } from 'express';
import type { Logger } from 'pino';
import type { ConnectionLimit } from '../api/http/connection-limit.ts';
import { respondToProtocolErrors, respondStarting } from '../api/http/protocol-errors.ts';
import { isStream } from '../api/http/event-stream.ts';
import { ConfigError } from '../config.ts';

export interface HttpServer {
  url: string;
  /** Passes requests to the app from now on; before, they get a response with 503. */
  serve: (app: Express) => void;
  /** Stops accepting requests, completes pending ones, and closes event streams: their readers reconnect elsewhere. */
  stop: () => Promise<void>;
}

interface Address {
  host: string;
  port: number;
  /** The environment variable of the port, for error messages. */
  setting: string;
  /** For servers that untrusted clients can reach. */
  connectionLimit?: Pick<ConnectionLimit, 'admit'>;
  log?: Logger;
}

/** How long pending requests may take when the server stops. */
const GRACE_MS = 5_000;

/** How long the server waits for its clients. Its own responses have no time limit. */
const TIMEOUTS = {
  /** For the head of a request, from its first byte. */
  headMs: 15_000,
  /** For a request with its body: 30 MB take minutes over a slow connection. */
  requestMs: 300_000,
  checkMs: 2_000,
  /** For a connection without traffic: streams send something every 15 s, and no command takes a minute. */
  idleMs: 120_000,
};

/** Longer than the minute of most proxies: otherwise they send requests on a connection that was just closed. */
const KEEP_ALIVE_MS = 75_000;

const MAX_HEADERS = 200;

/** Further connections are closed at once: each takes memory and a file handle. */
const MAX_CONNECTIONS = 10_000;

/**
 * Listens on an address. This comes first in the start of a process, so that a port in use is reported at once.
 * @throws ConfigError if the address cannot be listened on
 */
export async function listenHttp(
  address: Address,
  { headMs, requestMs, checkMs, idleMs }: typeof TIMEOUTS = TIMEOUTS,
): Promise<HttpServer> {
  const options = {
    // The app rejects a request without Host, in the same form as its other errors.
    requireHostHeader: false,
    headersTimeout: headMs,
    requestTimeout: requestMs,
    connectionsCheckingInterval: checkMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
  };
  const server = createServer(options);
  let respond: RequestListener = respondStarting;
  server.on('request', (request, response) => respond(request, response));
  // The time-outs above are for receiving. This one is for sending: a response that is not read stays in memory.
  server.timeout = idleMs;
  server.maxHeadersCount = MAX_HEADERS;
  server.maxConnections = MAX_CONNECTIONS;
  server.on('connection', (socket) => address.connectionLimit?.admit(socket));
  respondToProtocolErrors(server);
  const responses = new Set<ServerResponse>();
  server.on('request', (_request, response) => {
    responses.add(response);
    response.once('close', () => {
      responses.delete(response);
      if (!server.listening) setImmediate(() => server.closeIdleConnections());
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, address)));
    server.listen(address.port, address.host, resolve);
  });
  const bound = server.address();
  const port = typeof bound === 'object' && bound ? bound.port : address.port;
  const host = address.host.includes(':') ? `[${address.host}]` : address.host;
  const stop = async (): Promise<void> => {
    const closed = new Promise((resolve) => server.close(resolve));
    const streams = [...responses].filter(isStream);
    if (streams.length > 0) {
      address.log?.info(
        { streams: streams.length },
        'event streams are closed: their readers resume from their cursors',
      );
    }
    for (const stream of streams) stream.destroy();
    const late = setTimeout(() => server.closeAllConnections(), GRACE_MS);
    await closed;
    clearTimeout(late);
  };
  let stopped: Promise<void> | undefined;
  return {
    url: `http://${host}:${port}`,
    serve: (app) => void (respond = app),
    stop: () => (stopped ??= stop()),
  };
}

/** Takes the port of the health and metrics of a process without an API, if one is configured. */
export async function listenForHealth(
  { host, port }: { host: string; port: number | undefined },
  setting: string,
  cleanup: AsyncDisposableStack,
): Promise<HttpServer | undefined> {
  if (port === undefined) return undefined;
  const server = await listenHttp({ host, port, setting });
  cleanup.defer(() => server.stop());
  return server;
}

function listenError(error: NodeJS.ErrnoException, { host, port, setting }: Address): Error {
  const reasons: Record<string, string> = {
    EADDRINUSE: `the port is in use: choose another ${setting}`,
    EACCES: `the port requires privileges: choose an ${setting} above 1023`,
    EADDRNOTAVAIL: 'this machine does not have that address: set EVERTURN_HOST',
  };
  const reason = error.code && reasons[error.code];
  return reason ? new ConfigError(`cannot listen on ${host}:${port}, ${reason}`, { cause: error }) : error;
}
