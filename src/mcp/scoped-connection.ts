import { withoutContext } from '../telemetry/log-context.ts';
import type { McpConnection } from './connection.ts';
import { PatientFlight, type Patience } from './patient-flight.ts';
import type { StreamBudget } from './stream-budget.ts';

interface ScopedConnectionOptions {
  open: () => Promise<McpConnection>;
  /** For all of its connections, one after the other. */
  budget: StreamBudget;
  /** See `PatientFlight`. */
  pending: string;
  patience: Patience;
}

/** The connection to a server that all callers of a scope share: opened on first use, and reopened after it was lost. */
export class ScopedConnection {
  readonly #open: () => Promise<McpConnection>;
  readonly #budget: StreamBudget;
  readonly #opening: PatientFlight<McpConnection>;
  #connection: McpConnection | undefined;

  constructor({ open, budget, pending, patience }: ScopedConnectionOptions) {
    this.#open = open;
    this.#budget = budget;
    this.#opening = new PatientFlight(pending, patience);
  }

  get isOpen(): boolean {
    return this.#connection?.takesCalls === true;
  }

  /** Whether it has no state and can be dropped. */
  get isUnused(): boolean {
    return !this.isOpen && this.#opening.isIdle && !this.#budget.failure;
  }

  /** Closes the connection as soon as it is unused. */
  retire(): void {
    this.#connection?.retire();
  }

  /** @throws the reason of the signal, an error if the connection failed or is not open yet, or that of its budget */
  async get(signal: AbortSignal): Promise<McpConnection> {
    signal.throwIfAborted();
    if (this.#connection?.takesCalls) return this.#connection;
    if (this.#budget.failure) throw this.#budget.failure;
    return this.#opening.run(this.#attempt, signal);
  }

  /** Opens the connection before it is needed, and waits for it. */
  begin(): Promise<McpConnection> {
    return this.#opening.begin(this.#attempt);
  }

  // The connection outlives the turn that opens it, so its log lines must not carry that turn's context.
  readonly #attempt = (): Promise<McpConnection> => withoutContext(async () => (this.#connection = await this.#open()));
}
