import { memoryOf } from '../lib/processes.ts';
import { McpServerError } from './errors.ts';
import { McpConnection, type ConnectionOptions } from './connection.ts';
import type { McpEndpoint } from './registry.ts';

export interface OpenBounds {
  max: number;
  /** The memory that the processes of the connections take together, in bytes. Default: not bounded. */
  maxBytes?: number;
}

/**
 * The open connections of one kind, with upper bounds: each takes a socket and memory here and a session at its
 * server, or is a process. At a bound, the connection that has been idle longest is closed to make room.
 */
export class OpenConnections {
  readonly #bounds: OpenBounds;
  readonly #stop = new AbortController();
  /** Connections that are not completely closed, the least recently used first. */
  readonly #open = new Set<McpConnection>();
  readonly #opening = new Set<Promise<McpConnection>>();

  constructor(bounds: OpenBounds) {
    this.#bounds = bounds;
  }

  /** @throws McpServerError if all connections are in use, or the error with which this one could not be opened */
  async open(endpoint: McpEndpoint, options: ConnectionOptions): Promise<McpConnection> {
    await this.#freeMemory();
    this.#stop.signal.throwIfAborted();
    const { max } = this.#bounds;
    while (this.#open.size + this.#opening.size >= max) {
      const idle = this.#idle;
      if (!idle) throw new McpServerError(`has no free connection: all ${max} connections are in use`);
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

  get #idle(): McpConnection | undefined {
    return [...this.#open].find(({ isInUse }) => !isInUse);
  }

  /** A program may take 50 MB or, with a browser, more than a gigabyte, so their number alone bounds no memory. */
  async #freeMemory(): Promise<void> {
    const { maxBytes = Infinity } = this.#bounds;
    if (maxBytes === Infinity || this.#open.size === 0) return;
    const pids = [...this.#open].flatMap(({ pid }) => pid ?? []);
    const memory = await memoryOf(new Set(pids));
    const used = (): number => [...this.#open].reduce((sum, { pid = 0 }) => sum + (memory.get(pid) ?? 0), 0);
    while (used() >= maxBytes) {
      const idle = this.#idle;
      if (!idle) {
        const [has, may] = [used(), maxBytes].map((bytes) => `${Math.round(bytes / 1e6)} MB`);
        throw new McpServerError(`cannot be started: the programs that are in use take ${has}, and may take ${may}`);
      }
      await idle.close();
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
