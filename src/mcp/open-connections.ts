import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { memoryOf } from '../lib/processes.ts';
import { McpServerError } from './errors.ts';
import { McpConnection, type ConnectionOptions } from './connection.ts';
import type { McpEndpoint } from './registry.ts';
import type { ServerTransport } from './transport.ts';

interface OpenBounds {
  max: number;
  /** The memory that the processes of the connections take together, in bytes. Default: not bounded. */
  maxBytes?: number;
}

/** A connection that is being opened. */
interface Opening {
  connection: Promise<McpConnection>;
  /** The last transport that was tried. */
  transport: () => ServerTransport | undefined;
}

/**
 * The open connections of one kind, with upper bounds: each takes a socket and memory here and a session at its
 * server, or is a process. At a bound, the connection that has been idle longest is closed.
 */
export class OpenConnections {
  readonly #bounds: OpenBounds;
  readonly #memoryOf: typeof memoryOf;
  readonly #stop = new AbortController();
  /** Connections that are not completely closed, the least recently used first. */
  readonly #open = new Set<McpConnection>();
  readonly #opening = new Set<Opening>();
  readonly #checks = new KeyedSemaphore(1);

  constructor(bounds: OpenBounds, memory: typeof memoryOf = memoryOf) {
    this.#bounds = bounds;
    this.#memoryOf = memory;
  }

  /** @throws McpServerError if all connections are in use, or the error with which this one could not be opened */
  async open(endpoint: McpEndpoint, options: ConnectionOptions): Promise<McpConnection> {
    const { maxBytes } = this.#bounds;
    // One at a time, so that no program is ended to make room for two.
    const opening = await (maxBytes === undefined
      ? this.#begin(endpoint, options)
      : this.#checks.run('', async () => {
          await this.#freeMemory(maxBytes);
          return this.#begin(endpoint, options);
        }));
    try {
      const connection = await opening.connection;
      this.#open.add(connection);
      void connection.closed.then(() => this.#open.delete(connection));
      return connection;
    } finally {
      this.#opening.delete(opening);
    }
  }

  async #begin(endpoint: McpEndpoint, options: ConnectionOptions): Promise<Opening> {
    this.#stop.signal.throwIfAborted();
    const { max } = this.#bounds;
    while (this.#open.size + this.#opening.size >= max) {
      const idle = [...this.#open].find(({ isInUse }) => !isInUse);
      if (!idle) throw new McpServerError(`has no free connection: all ${max} connections are in use`);
      await idle.close();
    }
    let last: ServerTransport | undefined;
    const onTry = (transport: ServerTransport): void => void (last = transport);
    const connection = McpConnection.open(endpoint, { ...options, onTry }, this.#stop.signal);
    const opening = { connection, transport: () => last };
    this.#opening.add(opening);
    return opening;
  }

  /**
   * A program may take 70 MB or, with a browser, more than a gigabyte, so their number alone bounds no memory. Nothing is
   * closed if that would not make enough room.
   */
  async #freeMemory(maxBytes: number): Promise<void> {
    const starting = [...this.#opening].flatMap(({ transport }) => transport()?.pid ?? []);
    const pids = [...this.#open].flatMap(({ pid }) => pid ?? []);
    if (pids.length + starting.length === 0) return;
    const memory = await this.#memoryOf(new Set([...pids, ...starting]));
    const sizeOf = (pid = 0): number => memory.get(pid) ?? 0;
    const open = [...this.#open];
    let inUse = 0;
    for (const pid of starting) inUse += sizeOf(pid);
    for (const { isInUse, pid } of open) if (isInUse) inUse += sizeOf(pid);
    const idle = open.filter(({ isInUse, pid }) => !isInUse && sizeOf(pid) > 0);
    let used = idle.reduce((sum, { pid }) => sum + sizeOf(pid), inUse);
    for (const connection of inUse < maxBytes ? idle : []) {
      if (used < maxBytes) return;
      // A call may have begun while another one was closed.
      if (connection.isInUse) continue;
      await connection.close();
      used -= sizeOf(connection.pid);
    }
    if (used < maxBytes) return;
    const [has, may] = [inUse, maxBytes].map((bytes) => `${Math.round(bytes / 1e6)} MB`);
    throw new McpServerError(
      `cannot be started: the programs that are in use, or are starting, take ${has}, and may take ${may}`,
    );
  }

  /** Marks the connection as the most recently used. */
  touch(connection: McpConnection): void {
    if (this.#open.delete(connection)) this.#open.add(connection);
  }

  /** Settles when all connections are closed and all processes have ended. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('the server is shutting down'));
    await Promise.allSettled([...this.#opening].map(({ connection }) => connection));
    await Promise.all([...this.#open].map((connection) => connection.close()));
  }
}
