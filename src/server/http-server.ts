import { createServer, type ServerResponse } from 'node:http';
import type { Express } from 'express';
import type { ConnectionLimit } from '../api/http/connection-limit.ts';
import { answerProtocolErrors } from '../api/http/protocol-errors.ts';
import { isStream } from '../api/http/event-stream.ts';
import { ConfigError } from '../config.ts';

export interface HttpServer {
  url: string;
  /** Refuses new requests, lets others have their answers, and cuts off streams: their readers come back elsewhere. */
  stop: () => Promise<void>;
}

interface Address {
  host: string;
  port: number;
  /** The setting that the port is from, for who has to change it. */
  setting: string;
  /** Where strangers can reach it. */
  connectionLimit?: ConnectionLimit;
}

/** How long requests may take that are under way when the server stops. */
const GRACE_MS = 5_000;

/** How long the server waits for its clients; what it answers may take any time. */
interface HttpTimeouts {
  /** For a request that has begun to come. */
  headMs: number;
  /** With its body: 30 MB over a slow line take minutes. */
  requestMs: number;
  checkMs: number;
  /** While nothing is sent or taken on a connection: streams send something every 15 s, and no command takes a minute. */
  idleMs: number;
}

const PATIENCE: HttpTimeouts = { headMs: 15_000, requestMs: 300_000, checkMs: 2_000, idleMs: 120_000 };

/** Longer than proxies keep theirs, which is a minute: or they send into a connection that has just been closed. */
const KEEP_ALIVE_MS = 75_000;

const MAX_HEADERS = 200;

/** More are closed at once: each takes memory and a file handle. */
const MAX_CONNECTIONS = 10_000;

/** @throws ConfigError if it can't listen there */
export async function serveHttp(
  app: Express,
  address: Address,
  { headMs, requestMs, checkMs, idleMs }: HttpTimeouts = PATIENCE,
): Promise<HttpServer> {
  const options = {
    // A request without Host is refused by the app, in the form of its other errors.
    requireHostHeader: false,
    headersTimeout: headMs,
    requestTimeout: requestMs,
    connectionsCheckingInterval: checkMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
  };
  const server = createServer(options, app);
  // Who does not take an answer holds it in our memory: the times above are for what comes, this one is for what goes.
  server.timeout = idleMs;
  server.maxHeadersCount = MAX_HEADERS;
  server.maxConnections = MAX_CONNECTIONS;
  server.on('connection', (socket) => address.connectionLimit?.admit(socket));
  answerProtocolErrors(server);
  const answers = new Set<ServerResponse>();
  server.on('request', (_request, response) => {
    answers.add(response);
    response.once('close', () => {
      answers.delete(response);
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
  return {
    url: `http://${host}:${port}`,
    stop: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const answer of answers) if (isStream(answer)) answer.destroy();
      const late = setTimeout(() => server.closeAllConnections(), GRACE_MS);
      await closed;
      clearTimeout(late);
    },
  };
}

function listenError(error: NodeJS.ErrnoException, { host, port, setting }: Address): Error {
  const reasons: Record<string, string> = {
    EADDRINUSE: `something else listens there: choose another ${setting}`,
    EACCES: `it needs more rights: choose an ${setting} above 1023`,
    EADDRNOTAVAIL: 'this machine does not have that address: set EVERTURN_HOST',
  };
  const reason = error.code && reasons[error.code];
  return reason ? new ConfigError(`can't listen on ${host}:${port}, ${reason}`, { cause: error }) : error;
}
