import type { ToolScope } from '../core/history.ts';
import type { McpConnection } from './connection.ts';
import type { HiddenCredentials } from './hidden-credentials.ts';
import type { McpEndpoint } from './registry.ts';
import { ScopedConnection } from './scoped-connection.ts';
import type { StreamBudget } from './stream-budget.ts';

interface PooledServerOptions {
  open: (budget: StreamBudget) => Promise<McpConnection>;
  createBudget: () => StreamBudget;
  grantId: string | undefined;
  credentials: HiddenCredentials;
  now: () => number;
}

/**
 * A server and the connections to it. An HTTP server keeps state for a connection if its answer to `initialize` has a
 * session id. A connection without state serves all scopes; one with state belongs to the scope that opened it, and
 * every other scope gets its own. Programs always have state.
 */
export class PooledServer {
  /** The grant that its connections use. */
  readonly grantId: string | undefined;
  readonly credentials: HiddenCredentials;
  readonly #endpoint: McpEndpoint;
  readonly #create: () => ScopedConnection;
  readonly #scoped = new Map<string, ScopedConnection>();
  /** Shared by all scopes, or not yet assigned to one. */
  #common: ScopedConnection;
  #keepsState: boolean;

  constructor(endpoint: McpEndpoint, { open, createBudget, grantId, credentials, now }: PooledServerOptions) {
    this.grantId = grantId;
    this.credentials = credentials;
    this.#endpoint = endpoint;
    this.#create = () => new ScopedConnection(open, createBudget(), now);
    this.#common = this.#create();
    this.#keepsState = 'command' in endpoint;
  }

  /** Whether it holds no state and can be dropped. */
  get isUnused(): boolean {
    return [this.#common, ...this.#scoped.values()].every(({ isUnused }) => isUnused);
  }

  /** Closes its connections as soon as they are unused. */
  retire(): void {
    for (const connection of [this.#common, ...this.#scoped.values()]) connection.retire();
  }

  /** @throws the reason of the signal, or the error with which the connection could not be opened */
  async connection(scope: ToolScope, signal: AbortSignal): Promise<McpConnection> {
    const { isolation } = this.#endpoint;
    if (isolation === 'shared') return this.#common.get(signal);
    const key = isolation === 'session' ? scope.sessionId : scope.owner.subjectId;
    if (this.#keepsState || this.#scoped.get(key)?.isOpen) return this.#own(key, signal);
    const common = this.#common;
    const connection = await common.get(signal);
    if (!connection.keepsState) return connection;
    this.#keepsState = true;
    // Another scope took the connection first.
    if (this.#common !== common) return this.#own(key, signal);
    this.#common = this.#create();
    this.#scoped.set(key, common);
    return connection;
  }

  async #own(key: string, signal: AbortSignal): Promise<McpConnection> {
    const connection = await this.#scopedOf(key).get(signal);
    this.#keepsState = connection.keepsState;
    return connection;
  }

  #scopedOf(key: string): ScopedConnection {
    const known = this.#scoped.get(key);
    if (known) return known;
    for (const [other, { isUnused }] of this.#scoped) if (isUnused) this.#scoped.delete(other);
    const created = this.#create();
    this.#scoped.set(key, created);
    return created;
  }
}
