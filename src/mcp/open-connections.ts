import { McpServerError } from './errors.ts';
import { McpConnection, type ConnectionOptions } from './connection.ts';
import type { McpEndpoint } from './registry.ts';

/**
 * The open connections of one kind, with an upper bound: each takes a socket and memory here and a session at its
 * server, or is a process. At the bound, the connection that has been idle longest is closed to make room.
 */
export class OpenConnections {
  readonly #max: number;
  readonly #stop = new AbortController();
  /** Connections that are not completely closed, the least recently used first. */
  readonly #open = new Set<McpConnection>();
  readonly #opening = new Set<Promise<McpConnection>>();

  constructor(max: number) {
    this.#max = max;
  }

  /** @throws McpServerError if all connections are in use, or the error with which this one could not be opened */
  async open(endpoint: McpEndpoint, options: ConnectionOptions): Promise<McpConnection> {
    this.#stop.signal.throwIfAborted();
    while (this.#open.size + this.#opening.size >= this.#max) {
      const idle = [...this.#open].find(({ isInUse }) => !isInUse);
      if (!idle) throw new McpServerError(`has no free connection: all ${this.#max} connections are in use`);
      await idle.close();
    }
    const opening = McpConnection.open(endpoint, options, this.#stop.signal);
    this.#opening.add(opening);
    try {
      const connection = await opening;
      this.#open.add(connection);
      void connection.closed.then(() => this.#open.delete(connection));
      return connection;
    } finally {
      this.#opening.delete(opening);
    }
  }

  /** Marks the connection as the most recently used. */
  touch(connection: McpConnection): void {
    if (this.#open.delete(connection)) this.#open.add(connection);
  }

  /** Settles when all connections are closed and all processes have ended. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('the server is shutting down'));
    await Promise.allSettled(this.#opening);
    await Promise.all([...this.#open].map((connection) => connection.close()));
  }
}
