import { outsideScopes } from '../telemetry/log-scope.ts';
import { unlessAborted } from '../unless-aborted.ts';
import { McpConnection, type ConnectionOptions } from './mcp-connection.ts';
import type { McpEndpoint } from './registry.ts';
import { SharedAttempt } from './shared-attempt.ts';

/** A server and the one connection to it that all share: opened when somebody needs it, and again when it is lost. */
export class PooledServer {
  readonly #endpoint: McpEndpoint;
  readonly #options: ConnectionOptions;
  readonly #opening: SharedAttempt<McpConnection>;
  readonly #stop = new AbortController();
  /** All that are not wholly closed, also those that only finish their calls. */
  readonly #connections = new Set<McpConnection>();
  #connection: McpConnection | undefined;

  constructor(endpoint: McpEndpoint, options: ConnectionOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
    this.#opening = new SharedAttempt(options.now);
  }

  /** Nothing is lost if it is forgotten. */
  get isUnused(): boolean {
    return this.#connections.size === 0 && this.#opening.isBlank;
  }

  /** @throws the reason of the signal, or what keeps the connection from being opened. */
  async connection(signal: AbortSignal): Promise<McpConnection> {
    signal.throwIfAborted();
    return (
      this.#opened ??
      unlessAborted(
        // What the server says as long as it lives is not of the turn that happens to be the first.
        this.#opening.run(() => outsideScopes(() => this.#open())),
        signal,
      )
    );
  }

  /** The connection is of no use any more, but for the calls that are under way. */
  drop(connection: McpConnection): void {
    if (this.#connection === connection) this.#connection = undefined;
    connection.retire();
  }

  /** Settles when nothing of the server is left, neither connections nor processes. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('the server is shutting down'));
    await this.#opening.settled();
    await Promise.all([...this.#connections].map((connection) => connection.close()));
  }

  get #opened(): McpConnection | undefined {
    return this.#connection?.isClosed === false ? this.#connection : undefined;
  }

  async #open(): Promise<McpConnection> {
    const { signal } = this.#stop;
    signal.throwIfAborted();
    const connection = await McpConnection.open(this.#endpoint, this.#options, signal);
    this.#connections.add(connection);
    void connection.closed.then(() => this.#connections.delete(connection));
    this.#connection = connection;
    return connection;
  }
}
