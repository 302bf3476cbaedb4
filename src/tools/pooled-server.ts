import { McpConnection, type ConnectionOptions } from './mcp-connection.ts';
import type { McpEndpoint } from './registry.ts';
import { SharedAttempt, unlessAborted } from './shared-attempt.ts';

/** A server and the one connection to it that all share: opened when somebody needs it, and again when it is lost. */
export class PooledServer {
  readonly #endpoint: McpEndpoint;
  readonly #options: ConnectionOptions;
  readonly #opening: SharedAttempt<McpConnection>;
  #connection: McpConnection | undefined;
  #isClosed = false;

  constructor(endpoint: McpEndpoint, options: ConnectionOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
    this.#opening = new SharedAttempt(options.now);
  }

  /** Nothing is lost if it is forgotten. */
  get isUnused(): boolean {
    return !this.#opened && this.#opening.isBlank;
  }

  /** @throws the reason of the signal, or what keeps the connection from being opened. */
  async connection(signal: AbortSignal): Promise<McpConnection> {
    signal.throwIfAborted();
    return (
      this.#opened ??
      unlessAborted(
        this.#opening.run(() => this.#open()),
        signal,
      )
    );
  }

  /** The connection is of no use any more, but for the calls that are under way. */
  drop(connection: McpConnection): void {
    if (this.#connection === connection) this.#connection = undefined;
    connection.retire();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#connection?.close();
  }

  get #opened(): McpConnection | undefined {
    return this.#connection?.isClosed === false ? this.#connection : undefined;
  }

  async #open(): Promise<McpConnection> {
    if (this.#isClosed) throw new Error('the server is shutting down');
    const connection = await McpConnection.open(this.#endpoint, this.#options);
    if (this.#isClosed) await connection.close();
    this.#connection = connection;
    return connection;
  }
}
