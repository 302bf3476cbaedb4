import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** The loopback's servers on the ports that code may reach, as `localhost`. Only root listens there. */
export interface WebPorts {
  /** The requests of http so far. */
  requests: IncomingMessage[];
  /** A port on which the loopback answers as on port 80. */
  otherPort: number;
  close: () => void;
}

const RETRY_MS = 100;

/**
 * Listens on ports 80 and 443 of the loopback, once no other test does. Port 80 answers with the host and the path that it was
 * asked for, after `reached`; `/redirect` leads to `http://other.test/`. Port 443 echoes.
 */
export async function openWebPorts(): Promise<WebPorts> {
  const requests: IncomingMessage[] = [];
  // As servers do that read some requests differently than a proxy.
  const web = createHttpServer({ insecureHTTPParser: true }, (request, response) => {
    requests.push(request);
    const { method, url, headers } = request;
    if (url === '/redirect') response.writeHead(302, { location: 'http://other.test/' });
    // Also what has come with the connection, of which the first request is only a part.
    const key = headers['proxy-authorization'] ?? '';
    request.resume().once('end', () => response.end(`reached ${method} ${headers.host} ${url} ${key}`.trim()));
  });
  const other = createHttpServer((_, response) => response.end('reached\n'));
  const echo = createServer((client: Socket) => {
    client.on('error', () => client.destroy());
    client.pipe(client);
  });
  const servers: Server[] = [web, echo, other];
  for (const [server, port] of [
    [web, 80],
    [echo, 443],
    [other, 0],
  ] as const) {
    await listenOnceFree(server, port);
  }
  return {
    requests,
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it listens on a port
    otherPort: (other.address() as AddressInfo).port,
    close: () => {
      for (const server of servers) server.close();
      web.closeAllConnections();
    },
  };
}

async function listenOnceFree(server: Server, port: number): Promise<void> {
  for (;;) {
    try {
      await once(server.listen(port, '127.0.0.1'), 'listening');
      return;
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EADDRINUSE')) throw error;
      await sleep(RETRY_MS);
    }
  }
}
