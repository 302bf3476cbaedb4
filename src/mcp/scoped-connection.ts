import { withoutContext } from '../telemetry/log-context.ts';
import { waitOrAbort } from '../lib/abort.ts';
import type { McpConnection } from './connection.ts';
import { SingleFlight } from '../lib/single-flight.ts';

/** The one connection to a server that the callers of a scope share: opened when it is needed, and again when it is lost. */
export class ScopedConnection {
  readonly #open: () => Promise<McpConnection>;
  readonly #opening: SingleFlight<McpConnection>;
  #connection: McpConnection | undefined;

  /** `now`: milliseconds that never run backwards. */
  constructor(open: () => Promise<McpConnection>, now: () => number) {
    this.#open = open;
    this.#opening = new SingleFlight(now);
  }

  get isOpen(): boolean {
    return this.#connection?.takesCalls === true;
  }

  /** Nothing is lost if it is forgotten. */
  get isUnused(): boolean {
    return !this.isOpen && this.#opening.isIdle;
  }

  /** @throws the reason of the signal, or what keeps the connection from being opened. */
  async get(signal: AbortSignal): Promise<McpConnection> {
    signal.throwIfAborted();
    if (this.#connection?.takesCalls) return this.#connection;
    // What the server says as long as it lives is not of the turn that happens to be the first.
    const opening = this.#opening.run(() => withoutContext(async () => (this.#connection = await this.#open())));
    return waitOrAbort(opening, signal);
  }
}
