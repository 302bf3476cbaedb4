import { withoutContext } from '../telemetry/log-context.ts';
import { waitOrAbort } from '../lib/abort.ts';
import type { McpConnection } from './connection.ts';
import { SingleFlight } from '../lib/single-flight.ts';

/** The connection to a server that all callers of a scope share: opened on first use, and reopened after it was lost. */
export class ScopedConnection {
  readonly #open: () => Promise<McpConnection>;
  readonly #opening: SingleFlight<McpConnection>;
  #connection: McpConnection | undefined;

  /** `now`: a monotonic clock in milliseconds. */
  constructor(open: () => Promise<McpConnection>, now: () => number) {
    this.#open = open;
    this.#opening = new SingleFlight(now);
  }

  get isOpen(): boolean {
    return this.#connection?.takesCalls === true;
  }

  /** Whether it holds no state and can be dropped. */
  get isUnused(): boolean {
    return !this.isOpen && this.#opening.isIdle;
  }

  /** Closes the connection as soon as it is unused. */
  retire(): void {
    this.#connection?.retire();
  }

  /** @throws the reason of the signal, or the error with which the connection could not be opened */
  async get(signal: AbortSignal): Promise<McpConnection> {
    signal.throwIfAborted();
    if (this.#connection?.takesCalls) return this.#connection;
    // The connection outlives the turn that opens it, so its log lines must not carry that turn's context.
    const opening = this.#opening.run(() => withoutContext(async () => (this.#connection = await this.#open())));
    return waitOrAbort(opening, signal);
  }
}
