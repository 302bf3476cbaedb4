import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** Stands between the server and something that it depends on, and can take that away. */
export class TcpProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isUp = true;

  private constructor(host: string, port: number) {
    this.#server = createServer((client) => {
      if (!this.#isUp) {
        client.destroy();
        return;
      }
      const target = connect(port, host);
      for (const [from, to] of [
        [client, target],
        [target, client],
      ] as const) {
        this.#sockets.add(from);
        from.on('error', () => undefined);
        from.on('close', () => {
          this.#sockets.delete(from);
          to.destroy();
        });
        from.pipe(to);
      }
    });
  }

  static async start(target: string): Promise<TcpProxy> {
    const { hostname, port } = new URL(`tcp://${target}`);
    const proxy = new TcpProxy(hostname, Number(port));
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Cuts every connection, and every new one at once. */
  down(): void {
    this.#isUp = false;
    for (const socket of this.#sockets) socket.destroy();
  }

  up(): void {
    this.#isUp = true;
  }

  async stop(): Promise<void> {
    this.down();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
