import type { ToolScope } from '../core/history.ts';
import type { McpConnection } from './connection.ts';
import type { McpEndpoint } from './registry.ts';
import { ScopedConnection } from './scoped-connection.ts';

/**
 * A server and our connections to it. Whether an HTTP server keeps a state for a connection is known once it has
 * answered `initialize`: with a session id it does. Without one, the connection serves all scopes; with one, it belongs
 * to the scope that was the first to ask for it, and every other scope gets its own. Programs always have a state.
 */
export class PooledServer {
  readonly #endpoint: McpEndpoint;
  readonly #create: () => ScopedConnection;
  readonly #scoped = new Map<string, ScopedConnection>();
  /** Belongs to all scopes, or to none yet. */
  #common: ScopedConnection;
  #keepsState: boolean;

  constructor(endpoint: McpEndpoint, open: () => Promise<McpConnection>, now: () => number) {
    this.#endpoint = endpoint;
    this.#create = () => new ScopedConnection(open, now);
    this.#common = this.#create();
    this.#keepsState = 'command' in endpoint;
  }

  /** Nothing is lost if it is forgotten. */
  get isUnused(): boolean {
    return [this.#common, ...this.#scoped.values()].every(({ isUnused }) => isUnused);
  }

  /** @throws the reason of the signal, or what keeps the connection from being opened. */
  async connection(scope: ToolScope, signal: AbortSignal): Promise<McpConnection> {
    const { isolation } = this.#endpoint;
    if (isolation === 'shared') return this.#common.get(signal);
    const key = isolation === 'session' ? scope.sessionId : scope.owner.subjectId;
    if (this.#keepsState || this.#scoped.get(key)?.isOpen) return this.#own(key, signal);
    const common = this.#common;
    const connection = await common.get(signal);
    if (!connection.keepsState) return connection;
    this.#keepsState = true;
    // Another scope has been faster.
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
