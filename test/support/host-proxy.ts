import { once } from 'node:events';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Lets other machines reach a server of this one that accepts requests to loopback names only. */
export class HostProxy {
  readonly url: string;
  readonly #server: Server;

  private constructor(server: Server, url: string) {
    this.#server = server;
    this.url = url;
  }

  /**
   * @param target the URL of the server
   * @param address of this machine, on which it listens
   */
  static async start(target: string, address: string): Promise<HostProxy> {
    const { origin, host, pathname } = new URL(target);
    const server = createServer((incoming, response) => {
      const { method, headers, url = '/' } = incoming;
      const outgoing = request(origin + url, { method, headers: { ...headers, host } }, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      });
      outgoing.once('error', () => response.destroy());
      response.once('close', () => outgoing.destroy());
      incoming.pipe(outgoing);
    });
    server.listen(0, address);
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    return new HostProxy(server, `http://${address}:${port}${pathname}`);
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
