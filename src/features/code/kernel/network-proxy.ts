import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { pipeline, type Duplex } from 'node:stream';
import type { Logger } from 'pino';
import { guardedLookup, RefusedAddressError } from '../../../lib/guarded-fetch.ts';
import { openFolder, type OpenFolder } from '../../../lib/open-folder.ts';
import { hostName, isWithin } from '../../../spec/host-pattern.ts';

const MAX_HEADER_BYTES = 16 * 1024;
const HEADERS_MS = 30_000;
const CONNECT_MS = 10_000;
/** A connection over which nothing is sent for this time is closed. */
const IDLE_MS = 300_000;

/** The ports for `http` and, by `CONNECT`, for `https`. */
const HTTP_PORT = 80;
const HTTPS_PORT = 443;

/** Fields that concern one connection, or are rewritten: RFC 9110, sections 7.6.1 and 11.7. */
const NOT_FORWARDED = [
  'connection',
  'proxy-connection',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
  'host',
  'proxy-authorization',
  'proxy-authenticate',
  'proxy-authentication-info',
];

export interface ProxyRules {
  /** Patterns of the hosts that may be reached, in lower case. */
  hosts: readonly string[];
  /** Whether connections to this address of such a host are refused. */
  refuses: (address: string) => boolean;
  /** Counts a connection of the sandbox until the returned function is called; undefined: there are too many. */
  take: () => (() => void) | undefined;
  /** Queues the lookup of a name among those of all sandboxes. */
  inTurn: (lookUp: () => Promise<void>) => Promise<void>;
  log: Logger;
}

/** Why a request is not forwarded. Most clients show the text as the reason of the status. */
interface Refusal {
  status: number;
  text: string;
}

/**
 * The network access of code behind a wall: a proxy outside, at a Unix socket that only its sandbox can access. It
 * forwards `http` requests and `CONNECT` tunnels to hosts that are allowed by name. It resolves the names itself, and
 * connects only to addresses that it has checked.
 */
export class NetworkProxy {
  /** The path of the socket on this machine. */
  readonly socket: string;
  readonly #rules: ProxyRules;
  readonly #folder: string;
  /** Open until the socket is closed, which removes its path. */
  readonly #opened: OpenFolder;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** The connections above the limit. */
  readonly #surplus = new WeakSet<Duplex>();

  private constructor(rules: ProxyRules, folder: string, opened: OpenFolder) {
    this.#rules = rules;
    this.#folder = folder;
    this.#opened = opened;
    this.socket = path.join(folder, 'socket');
    this.#server = createServer({ maxHeaderSize: MAX_HEADER_BYTES, headersTimeout: HEADERS_MS, requestTimeout: 0 });
    this.#server.timeout = IDLE_MS;
    this.#server.on('connection', (socket: Socket) => this.#accept(socket));
    this.#server.on('request', (incoming: IncomingMessage, response: ServerResponse) =>
      this.#forward(incoming, response),
    );
    this.#server.on('connect', (incoming: IncomingMessage, client: Duplex, head: Buffer) =>
      this.#tunnel(incoming, client, head),
    );
  }

  /** @param parent a folder that no other user can enter, in which the proxy makes its own folder */
  static async open(rules: ProxyRules, parent: string): Promise<NetworkProxy> {
    const folder = await mkdtemp(path.join(parent, 'proxy-'));
    const opened = await openFolder(folder);
    const proxy = new NetworkProxy(rules, folder, opened);
    await once(proxy.#server.listen(path.join(opened.place, path.basename(proxy.socket))), 'listening');
    proxy.#server.unref();
    // The user of the sandbox is not that of this process. Other users cannot enter the folder.
    await chmod(proxy.socket, 0o666);
    return proxy;
  }

  async close(): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await this.#opened[Symbol.asyncDispose]();
    await rm(this.#folder, { recursive: true, force: true });
  }

  #accept(socket: Socket): void {
    const leave = this.#rules.take();
    if (!leave) this.#surplus.add(socket);
    this.#sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => {
      leave?.();
      this.#sockets.delete(socket);
    });
  }

  /** Forwards an `http` request. Only its target determines the host; the field Host is rewritten. */
  #forward(incoming: IncomingMessage, response: ServerResponse): void {
    const refuse = ({ status, text }: Refusal): void => {
      if (!response.headersSent)
        response.writeHead(status, text, { 'content-type': 'text/plain', connection: 'close' }).end(`${text}\n`);
      else if (!response.writableEnded) response.destroy();
    };
    const [, given = '', port = String(HTTP_PORT), rest = ''] =
      /^http:\/\/([^/?#:@]*)(?::(\d*))?([/?][^#]*)?$/i.exec(incoming.url ?? '') ?? [];
    const { host, refusal } = this.#admit(incoming, { given, port, only: HTTP_PORT });
    if (host === undefined) return refuse(refusal);
    const coding = incoming.headers['transfer-encoding'];
    if (coding !== undefined && coding.toLowerCase() !== 'chunked')
      return refuse({ status: 501, text: 'everturn: only the transfer coding chunked is supported' });
    let outgoing;
    try {
      outgoing = request({
        ...this.#address(host, HTTP_PORT),
        method: incoming.method,
        path: rest.startsWith('/') ? rest : `/${rest}`,
        // Keeps the framing of the body, which the server would otherwise read as the next request.
        headers: [
          'host',
          host,
          ...forwarded(incoming),
          'connection',
          'close',
          ...(coding ? ['transfer-encoding', 'chunked'] : []),
        ],
        agent: false,
        maxHeaderSize: MAX_HEADER_BYTES,
      });
    } catch {
      return refuse({ status: 400, text: 'everturn: the request has characters that no request may have' });
    }
    outgoing.setTimeout(IDLE_MS, () => outgoing.destroy());
    outgoing.once('socket', (socket) => limitConnecting(socket));
    outgoing.on('error', (error) => refuse(unreachable(host, error)));
    outgoing.once('response', (received) => {
      try {
        // Throws if the fields of the other server contain invalid characters.
        response.writeHead(received.statusCode ?? 0, forwarded(received));
      } catch {
        outgoing.destroy(new Error('its response is not valid HTTP'));
        return;
      }
      pipeline(received, response, () => outgoing.destroy());
    });
    pipeline(incoming, outgoing, (error) => {
      if (error) outgoing.destroy();
    });
    response.once('close', () => outgoing.destroy());
  }

  #tunnel(incoming: IncomingMessage, client: Duplex, head: Buffer): void {
    const refuse = ({ status, text }: Refusal): void => {
      const fields = `content-type: text/plain\r\ncontent-length: ${text.length + 1}\r\nconnection: close`;
      client.end(`HTTP/1.1 ${status} ${text}\r\n${fields}\r\n\r\n${text}\n`);
      // Otherwise the end of the client would not be detected.
      client.resume();
    };
    incoming.socket.setTimeout(IDLE_MS, () => client.destroy());
    const [, given = '', port = ''] = /^([^/?#:@]*):(\d+)$/.exec(incoming.url ?? '') ?? [];
    const { host, refusal } = this.#admit(incoming, { given, port, only: HTTPS_PORT });
    if (host === undefined) return refuse(refusal);
    const server = connect({ ...this.#address(host, HTTPS_PORT), allowHalfOpen: true });
    limitConnecting(server);
    let isConnected = false;
    server.on('error', (error) => {
      if (!isConnected) refuse(unreachable(host, error));
    });
    client.once('close', () => server.destroy());
    server.once('connect', () => {
      isConnected = true;
      server.setTimeout(IDLE_MS, () => server.destroy(new Error('nothing was sent')));
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      server.write(head);
      // The regular end of one direction leaves the other one open.
      const end = (error: Error | null | undefined): void => {
        if (!error) return;
        client.destroy();
        server.destroy();
      };
      pipeline(client, server, end);
      pipeline(server, client, end);
    });
  }

  /** The host of a request, or why it is refused. */
  #admit(
    { socket }: IncomingMessage,
    { given, port, only }: { given: string; port: string; only: number },
  ): { host: string; refusal?: never } | { host?: never; refusal: Refusal } {
    const refused = (status: number, text: string) => {
      this.#rules.log.debug({ host: given.slice(0, 255), port }, `a connection of code was refused: ${text}`);
      return { refusal: { status, text: `everturn: ${text}` } };
    };
    if (this.#surplus.has(socket)) return refused(503, 'the sandbox has too many connections: close some of them');
    const host = hostName(given);
    if (host === undefined)
      return refused(400, `ask for http://<host name>/<path> or CONNECT <host name>:${HTTPS_PORT}, not for an address`);
    if (port !== String(only))
      return refused(403, `code may connect to port ${HTTP_PORT} by http and to port ${HTTPS_PORT} by CONNECT alone`);
    if (!this.#rules.hosts.some((pattern) => isWithin(host, pattern)))
      return refused(403, `${host} is not a host that the agent allows its code in code_actions.network.allow`);
    return { host };
  }

  #address(host: string, port: number) {
    const { refuses, inTurn } = this.#rules;
    const lookUp = guardedLookup(refuses);
    const lookup = (...[name, options, callback]: Parameters<typeof lookUp>): void => {
      const found = Promise.withResolvers<void>();
      void inTurn(() => {
        lookUp(name, options, (...result) => {
          found.resolve();
          callback(...result);
        });
        return found.promise;
      });
    };
    return { host, port, lookup };
  }
}

/** The fields of a message that are forwarded. */
function forwarded({ rawHeaders, headers }: IncomingMessage): string[] {
  const named = headers.connection?.toLowerCase().split(',') ?? [];
  const dropped = new Set([...NOT_FORWARDED, ...named.map((name) => name.trim())]);
  // Kept even if `Connection` lists it: without it, the body would be read as the next message.
  dropped.delete('content-length');
  return rawHeaders.flatMap((name, i) => {
    return i % 2 === 0 && !dropped.has(name.toLowerCase()) ? [name, rawHeaders[i + 1] ?? ''] : [];
  });
}

function limitConnecting(socket: Socket): void {
  const timer = setTimeout(() => socket.destroy(new Error('it does not respond')), CONNECT_MS);
  socket.once('connect', () => clearTimeout(timer)).once('close', () => clearTimeout(timer));
}

function unreachable(host: string, error: Error): Refusal {
  if (error instanceof RefusedAddressError)
    return { status: 403, text: `everturn: ${host} is at a private address, which code may not reach` };
  const code = 'code' in error && typeof error.code === 'string' ? error.code : 'no connection';
  return { status: 502, text: `everturn: no connection to ${host} could be made (${code})` };
}
