import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** A proxy between the server and a dependency, which can be cut off. */
export class TcpProxy {
  readonly #server: Server;
  /** Connections, each with its counterpart. */
  readonly #sockets = new Map<Socket, Socket>();
  #isUp = true;
  #isHolding = false;

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
        this.#sockets.set(from, to);
        from.on('error', () => undefined);
        from.on('close', () => {
          this.#sockets.delete(from);
          to.destroy();
        });
        if (!this.#isHolding) from.pipe(to);
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

  /** Cuts all connections, and rejects new ones. */
  down(): void {
    this.#isUp = false;
    for (const socket of this.#sockets.keys()) socket.destroy();
  }

  up(): void {
    this.#isUp = true;
  }

  /** Holds back the data of both sides until `flow`, without an error for either. */
  hold(): void {
    this.#isHolding = true;
    for (const [from, to] of this.#sockets) from.unpipe(to);
  }

  flow(): void {
    // Otherwise everything would be sent twice.
    if (!this.#isHolding) return;
    this.#isHolding = false;
    for (const [from, to] of this.#sockets) from.pipe(to);
  }

  async stop(): Promise<void> {
    this.down();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
